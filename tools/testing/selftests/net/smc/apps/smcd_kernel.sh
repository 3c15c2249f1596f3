#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# mem: 3G
# tests: kernel
# As kernel.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/kernel.sh"
