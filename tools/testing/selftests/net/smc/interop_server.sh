#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: pair(c,ours)
# timeout: 500
# Our module as the server of the C module.

. "${LIB%/*}/interop.bash"
