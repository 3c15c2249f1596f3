#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# As memcached.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/memcached.sh"
