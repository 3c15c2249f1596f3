#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 600
# mem: 3G
# tests: libevent
# As libevent.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/libevent.sh"
