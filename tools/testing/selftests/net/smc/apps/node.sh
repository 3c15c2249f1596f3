#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 2400
# mem: 3G
# tests: node
# Node.js' own tests of sockets, TLS, HTTP/1, HTTP/2, and of sockets that processes pass on, over TCP, over SMC-R, and
# over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

export RUNNER="$PYTHON $APPS/nodetest.py"
export LD_LIBRARY_PATH=$SUITE/usr/lib/x86_64-linux-gnu OPENSSL_CONF=$APPS/node/openssl.cnf
DIFFERENCES=$APPS/node.differences
MODULES="node.net node.tls node.http node.https node.http2 node.cluster node.other"

# up_builtins: parts of Node.js that it reads from /usr/share/nodejs.
up_builtins() {
	mkdir /tmp/usr.share /tmp/share && mount --bind /usr/share /tmp/usr.share &&
		ln -s /tmp/usr.share/* /tmp/share && rm -f /tmp/share/nodejs &&
		ln -s "$SUITE/usr/share/nodejs" /tmp/share && mount --bind /tmp/share /usr/share
}

# up_hosts: its tests connect to ::1 by name.
up_hosts() {
	printf '%s localhost\n' 127.0.0.1 ::1 >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts
}

no_io_uring
up_ways
require "built-in modules" up_builtins
require "a name for ::1" up_hosts
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 300 20
