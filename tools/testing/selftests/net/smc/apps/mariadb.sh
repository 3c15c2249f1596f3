#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 4G
# tests: mariadb
# MariaDB's own tests of connections, TLS, compression and its clients over TCP, over SMC-R, and over SMC sockets that
# fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/mariadb.differences
CHOSEN="
bind_address_resolution
change_user
connect
connect-no-db
failed_auth_3909
host_cache_size_functionality
init_connect
kill
loaddata
loaddata_autocom_innodb
max_password_errors
multi_statement
mysqlslap
openssl_1
packet
pool_of_threads
prepare
skip_name_resolve
ssl
ssl_7937
ssl_8k_key
ssl_ca
ssl_compress
ssl_connect
ssl_crl
ssl_timeout-9836
ssl_verify_ip
status
thread_pool_info
user_limits
wait_timeout
"

export LD_LIBRARY_PATH=$SUITE/lib/x86_64-linux-gnu

# tests WAY MODULE [PREFIX...]
tests() {
	local way=$1 module=$2
	shift 2
	programs "$way" "$module" mtr "$SUITE/share/mysql/mysql-test" "/tmp/mtr.$way" \
		${CHOSEN//$'\n'/ } -- "$@"
}

up_ways
three_ways mariadb
end_ways 300 100
