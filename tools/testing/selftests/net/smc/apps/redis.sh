#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 900
# redis: load with and without pipelining, large values read back, a replica that ends up with the same data.

. "${LIB%/*}/apps/apps.bash"

cli() {
	at a redis-cli -h "$IP_B" "$@"
}

# benchmark OPTION...: every reply is checked by redis-benchmark, which ends at the first error.
benchmark() {
	at a redis-benchmark -h "$IP_B" -t set,get,lpush,lrange_100,mset -c 16 -n "$(scale 400 10000)" --csv "$@"
}

digest() {
	at "$1" redis-cli -h "$2" debug digest
}

same_digest() {
	local digest
	digest=$(digest b "$IP_A") && [ -n "${digest//0/}" ] && [ "$digest" = "$(digest a "$IP_B")" ]
}

up_apps
mark
redis=(redis-server --save '' --protected-mode no --enable-debug-command yes)
serve redis b 6379 "${redis[@]}" --bind "$IP_B" --dir /tmp
check "small values" benchmark -d 64
check "values of 16 KiB" benchmark -d 16384
check "pipelines" benchmark -d 512 -P 16

random_file /tmp/value $((3 << 20))
base64 -w 0 /tmp/value >/tmp/text
check "a value of 4 MiB goes there" cli -x set large </tmp/text
check "and comes back" same_sum /tmp/text sh -c "ip netns exec a $SMC run redis-cli -h $IP_B get large | head -c -1"

serve replica a 6379 "${redis[@]}" --bind "$IP_A" --dir /run --replicaof "$IP_B" 6379
check "a replica gets the same data" within 60 same_digest
check "load while it listens" benchmark -d 1024
check "it follows" within 60 same_digest
went_by_smc redis $((16 << 20))
over
