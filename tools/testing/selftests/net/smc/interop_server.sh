#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# timeout: 500
# Our module as the server of the C module.

. "${LIB%/*}/interop.bash"
