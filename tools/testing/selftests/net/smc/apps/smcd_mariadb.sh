#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 4G
# tests: mariadb
# As mariadb.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/mariadb.sh"
