#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: pair(ours,c)
# timeout: 900
# Links are lost with our module as the client of the C module.

. "${LIB%/*}/interop_failover.bash"
