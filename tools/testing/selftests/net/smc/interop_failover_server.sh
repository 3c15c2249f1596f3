#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# every: 5 days
# timeout: 900
# Links are lost with our module as the server of the C module.

. "${LIB%/*}/interop_failover.bash"
