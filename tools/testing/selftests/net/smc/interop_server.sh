#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# timeout: 560
# Our module as the server of the C module.

PHASES=(basics endings fallbacks eids iwarp c_goes)
. "${LIB%/*}/interop.bash"
