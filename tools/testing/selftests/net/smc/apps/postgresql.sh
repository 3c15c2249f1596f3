#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# PostgreSQL with pgbench: no transaction fails, the books balance, and a table copied over SMC is the table.

. "${LIB%/*}/apps/apps.bash"

DATA=/tmp/data
BINDIR=$(ls -d /usr/lib/postgresql/*/bin | tail -1)

# as_postgres COMMAND...: PostgreSQL refuses to run as root.
as_postgres() {
	setpriv --reuid postgres --regid postgres --clear-groups "$@"
}

# query HOST SQL: what it returns, with HOST a folder for the local socket.
query() {
	"$BINDIR/psql" -h "$1" -U postgres -AtX -v ON_ERROR_STOP=1 -c "$2" postgres
}

sum() {
	at a "$BINDIR/psql" -h "$IP_B" -U postgres -AtX -c "select coalesce(sum($2), 0) from $1" postgres
}

books_balance() {
	local sum
	sum=$(sum pgbench_accounts abalance) && [ "$(sum pgbench_branches bbalance)" = "$sum" ] &&
		[ "$(sum pgbench_tellers tbalance)" = "$sum" ] && [ "$(sum pgbench_history delta)" = "$sum" ] &&
		[ "$sum" != 0 ]
}

# bench NAME OPTION...
bench() {
	local name=$1
	shift
	at a "$BINDIR/pgbench" -h "$IP_B" -U postgres -c 8 -j 2 -n "$@" postgres >/tmp/pgbench 2>&1
	check "$name: pgbench ends well" [ $? = 0 ]
	sed 's/^/# /' /tmp/pgbench
	check "$name: no transaction failed" said /tmp/pgbench 'failed transactions: 0 '
	check "$name: all were done" grep -q 'actually processed: [1-9]' /tmp/pgbench
}

create() {
	install -d -o postgres -m 700 "$DATA" &&
		as_postgres "$BINDIR/initdb" -D "$DATA" -A trust --no-sync >/tmp/initdb 2>&1 &&
		echo "host all all ${IP_A%.*}.0/24 trust" >>"$DATA/pg_hba.conf" || { cat /tmp/initdb; return 1; }
}

up_apps
require "a cluster" create
mark
serve postgresql b 5432 setpriv --reuid postgres --regid postgres --clear-groups "$BINDIR/postgres" -D "$DATA" \
	-c listen_addresses="$IP_B" -c unix_socket_directories=/tmp -c fsync=off -c max_connections=20
require "tables are filled over SMC" at a "$BINDIR/pgbench" -h "$IP_B" -U postgres -i -q -s 1 postgres
bench "as TPC-B" -t "$(scale 25 2000)"
bench "prepared" -M prepared -t "$(scale 25 2000)"
bench "a connection for each transaction" -C -S -t "$(scale 4 100)"
check "the books balance" books_balance
query /tmp "copy pgbench_accounts to stdout" >/tmp/accounts
check "a table copied over SMC is the table" same_sum /tmp/accounts \
	at a "$BINDIR/psql" -h "$IP_B" -U postgres -qX -c "copy pgbench_accounts to stdout" postgres
went_by_smc postgresql $((10 << 20))
over
