#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# timeout: 500
# Our module as the client of the C module.

. "${LIB%/*}/interop.bash"
