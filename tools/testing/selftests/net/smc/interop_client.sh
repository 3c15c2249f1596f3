#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: pair(ours,c)
# timeout: 500
# Our module as the client of the C module.

. "${LIB%/*}/interop.bash"
