#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# tests: gevent
# gevent's own tests, as in gevent.sh, with its event loop of libuv.

LOOP=libuv-cffi
. "${LIB%/*}/apps/gevent.sh"
