#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 900
# As redis.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/redis.sh"
