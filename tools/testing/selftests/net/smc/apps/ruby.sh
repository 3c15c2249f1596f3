#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 1800
# mem: 3G
# tests: ruby
# Ruby's own tests of sockets, TLS, HTTP and DRb over TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

export RUNNER="ruby $APPS/rubytest.rb"
DIFFERENCES=$APPS/ruby.differences
MODULES="
ruby.socket.test_basicsocket
ruby.socket.test_nonblock
ruby.socket.test_socket
ruby.socket.test_sockopt
ruby.socket.test_tcp
ruby.openssl.test_pair
ruby.openssl.test_ssl
ruby.openssl.test_ssl_session
ruby.net.protocol.test_protocol
ruby.net.http.test_buffered_io
ruby.net.http.test_http
ruby.net.http.test_httpresponse
ruby.net.http.test_https
ruby.net.http.test_https_proxy
ruby.drb.test_drb
ruby.drb.test_drbssl
ruby.rinda.test_rinda
ruby.open-uri.test_open-uri
ruby.open-uri.test_ssl
ruby.webrick.test_cgi
ruby.webrick.test_filehandler
ruby.webrick.test_httpproxy
ruby.webrick.test_https
ruby.webrick.test_httpserver
ruby.webrick.test_server
ruby.webrick.test_ssl_server
"

up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 300 100
