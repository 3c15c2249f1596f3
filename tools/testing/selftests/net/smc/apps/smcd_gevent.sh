#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# tests: gevent
# As gevent.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/gevent.sh"
