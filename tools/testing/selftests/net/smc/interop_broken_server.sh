#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# every: 7 days
# timeout: 400
# cpus: 1
# RDMA packets stop, TCP goes on; our module as the server of the C module.

. "${LIB%/*}/interop_broken.bash"
