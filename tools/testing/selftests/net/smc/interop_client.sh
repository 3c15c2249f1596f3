#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# timeout: 560
# Our module as the client of the C module.

PHASES=(basics endings fallbacks eids iwarp c_goes)
. "${LIB%/*}/interop.bash"
