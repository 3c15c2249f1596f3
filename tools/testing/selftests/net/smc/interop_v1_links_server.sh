#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# every: 5 days
# roce: v1
# timeout: 400
# Links of a group in version 1, with our module as the server of the C module.

VERSION=1 LINKS=2 PHASES=(links_come links_go)
. "${LIB%/*}/interop.bash"
