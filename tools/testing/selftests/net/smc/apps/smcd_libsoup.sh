#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# mem: 3G
# tests: libsoup
# As libsoup.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/libsoup.sh"
