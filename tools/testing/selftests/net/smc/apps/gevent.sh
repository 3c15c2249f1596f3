#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# tests: gevent
# gevent's own tests of sockets, servers, TLS and polling with its event loop of libev, and CPython's tests of sockets
# and protocols with gevent in place of threads and blocking calls; over TCP, over SMC-R, and over SMC sockets that
# fall back.

. "${LIB%/*}/apps/python.bash"

export RUNNER="$PYTHON $APPS/geventtest.py" PYTHONPATH=$APPS/gevent:$SUITE
# Without a name server, its threads for names have nothing to do but to be waited for.
export GEVENT_LOOP=${LOOP:=libev-cext} GEVENT_RESOLVER=block
DIFFERENCES=$APPS/gevent.differences
MODULES="
gevent.tests.test__backdoor
gevent.tests.test__close_backend_fd
gevent.tests.test__greenio
gevent.tests.test__greenness
gevent.tests.test__issue600
gevent.tests.test__issues461_471
gevent.tests.test__makefile_ref
gevent.tests.test__monkey_select
gevent.tests.test__monkey_selectors
gevent.tests.test__pywsgi
gevent.tests.test__select
gevent.tests.test__selectors
gevent.tests.test__server
gevent.tests.test__server_pywsgi
gevent.tests.test__socket
gevent.tests.test__socket_close
gevent.tests.test__socket_errors
gevent.tests.test__socket_ex
gevent.tests.test__socket_send_memoryview
gevent.tests.test__socket_timeout
gevent.tests.test__socketpair
gevent.tests.test__ssl
"
PATCHED="
patched_test_socket
patched_test_ssl
patched_test_httplib
patched_test_httpservers
patched_test_urllib2_localnet
patched_test_xmlrpc
patched_test_ftplib
patched_test_imaplib
patched_test_poplib
patched_test_smtplib
"

case $LOOP in
libev-cext) MODULES="$MODULES $PATCHED" ;;
esac
no_io_uring
up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 200 100
