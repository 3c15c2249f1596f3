#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 2400
# mem: 3G
# tests: node
# As node.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/node.sh"
