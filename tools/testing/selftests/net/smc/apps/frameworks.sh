#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# The network tests of two Python frameworks with event loops of their own, Twisted and Tornado, over TCP, over SMC-R,
# and over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

DIFFERENCES=$APPS/frameworks.differences
MODULES="
twisted.internet.test.test_tcp
twisted.internet.test.test_tls
twisted.internet.test.test_core
twisted.test.test_tcp
twisted.test.test_tcp_internals
twisted.test.test_internet
twisted.test.test_ssl
twisted.web.test.test_webclient
tornado.test.iostream_test
tornado.test.tcpserver_test
tornado.test.tcpclient_test
tornado.test.httpserver_test
tornado.test.simple_httpclient_test
tornado.test.websocket_test
tornado.test.web_test
"

up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 300 100
