#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 900
# As iperf3.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/iperf3.sh"
