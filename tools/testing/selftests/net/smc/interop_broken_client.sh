#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 7 days
# timeout: 400
# cpus: 1
# RDMA packets stop, TCP goes on; our module as the client of the C module.

. "${LIB%/*}/interop_broken.bash"
