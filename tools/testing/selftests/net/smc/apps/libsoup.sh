#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# mem: 3G
# tests: libsoup
# The tests of libsoup, an HTTP library with its own server, that need no other one: HTTP/1 and 2, TLS, WebSocket; over
# TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/libsoup.differences
MODULES="
cache-test
chunk-io-test
coding-test
context-test
continue-test
forms-test
http2-test
logger-test
misc-test
multipart-test
no-ssl-test
ntlm-test
redirect-test
request-body-test
server-auth-test
server-test
session-test
sniffing-test
ssl-test
streaming-test
timeout-test
websocket-test
"

# Where they look for their certificates and files.
export G_TEST_SRCDIR=$SUITE G_TEST_BUILDDIR=$SUITE LD_LIBRARY_PATH=$SUITE

tests() {
	glib_tests "$SUITE" "$@"
}

up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 200 5
