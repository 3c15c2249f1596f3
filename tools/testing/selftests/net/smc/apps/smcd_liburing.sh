#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: debian-7.3
# timeout: 3600
# mem: 3G
# tests: liburing
# As liburing.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/liburing.sh"
