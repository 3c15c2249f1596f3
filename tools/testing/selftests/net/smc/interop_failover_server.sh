#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: pair(c,ours)
# timeout: 900
# Links are lost with our module as the server of the C module.

. "${LIB%/*}/interop_failover.bash"
