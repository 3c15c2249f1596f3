#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 600
# mem: 3G
# As glib.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/glib.sh"
