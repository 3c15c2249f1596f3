#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 600
# mem: 3G
# The network tests of GLib's GIO, as Debian installs them, over TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/glib.differences
MODULES="
socket
socket-listener
socket-service
gsocketclient-slow
proxy-test
network-address
pollable
debugcontroller
gdbus-peer
gdbus-server-auth
"

tests() {
	glib_tests "/usr/libexec/installed-tests/glib" "$@"
}

up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 20 20
