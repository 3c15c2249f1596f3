#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# every: 7 days
# also: debian-7.3
# timeout: 600
# cpus: 1
# SMC for programs that no preloaded library reaches: by IPPROTO_SMC, and by the BPF switch for a command, a
# cgroup, a name. And tracepoints with the kernel's code patched where they are, which User-Mode Linux cannot.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/trace.bash"

SOURCES=$(dirname "$(readlink -f "$0")")
SOURCE=$SOURCES/dial.c
WORK=$(mktemp -d)
BYTES=$((256 << 10))
CGROUPS=/sys/fs/cgroup

mounts() {
	mount -t cgroup2 none "$CGROUPS" && mount -t bpf bpf /sys/fs/bpf
}

# One has a C library of its own, the other none at all.
build() {
	gcc -O1 -static -o "$WORK/static" "$SOURCE" &&
		gcc -O1 -static -nostdlib -ffreestanding -fno-stack-protector -DRAW -o "$WORK/raw" "$SOURCE" &&
		gcc -O1 -o "$WORK/reuseport" "$SOURCES/reuseport.c" &&
		gcc -O1 -pthread -o "$WORK/renamed" "$SOURCES/renamed.c"
}

# exchange PROGRAM KIND COMMAND...: the program in both namespaces, each started by that command.
exchange() {
	local program=$WORK/$1 kind=$2 server code
	shift 2
	"$@" ip netns exec b "$program" "serve$kind" "$IP_B" 7000 "$BYTES" &
	server=$!
	await_port b 7000 30 && "$@" ip netns exec a timeout 60 "$program" "call$kind" "$IP_B" 7000 "$BYTES"
	code=$?
	[ "$code" = 0 ] || kill "$server"
	wait "$server" && [ "$code" = 0 ]
}

# in_cgroup PATH COMMAND...
in_cgroup() {
	local path=$CGROUPS/$1
	shift
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$path" "$@"
}

plainly() {
	"$@"
}

# both NAME WAY PREFIX...: the static program and the one without a library.
both() {
	local name=$1 way=$2 kind=$3 program
	shift 3
	for program in static raw; do
		check "$name: $program" "$way" "$BYTES" exchange "$program" "$kind" "$@"
	done
}

no_run_cgroups() {
	[ -z "$(find "$CGROUPS" -name 'smc-run-*')" ]
}

exit_code() {
	smc run --bpf sh -c 'exit 7'
	[ $? = 7 ]
}

# ignored_pipe EXPECTED OPTION: bit 12 of the ignored signals of the program.
ignored_pipe() {
	local ignored
	ignored=$(env "$2" smc run --bpf sed -n 's/^SigIgn:[[:space:]]*//p' /proc/self/status)
	[ $((0x${ignored:-ffff} >> 12 & 1)) = "$1" ] || { echo "# $ignored"; return 1; }
}

# not_started: of commands that are not there, or are none.
not_started() {
	smc run --bpf nosuch
	[ $? = 127 ] || return
	smc run --bpf /tmp
	[ $? = 126 ]
}

# shown LINE...: just these are switched.
shown() {
	[ "$(smc switch show)" = "$(printf '%s\n' "$@")" ]
}

# socket_of_thread NAME PROTOCOL: the program's thread by that name gets a socket of this protocol.
socket_of_thread() {
	local protocol
	protocol=$("$WORK/renamed" "$1") && echo "# $protocol" && [ "$protocol" = "$2" ]
}

# both_at_once: of commands that change the switch at the same time, none undoes what another did.
both_at_once() {
	local round first
	for round in {1..20}; do
		smc switch off || return
		smc switch add --cgroup /chosen &
		first=$!
		smc switch add --cgroup /other && wait "$first" || { echo "# round $round"; return 1; }
		shown "The switch is on." "cgroup /chosen" "cgroup /other" || { echo "# round $round"; return 1; }
	done
}

# CONNECTED: Python that connects to itself by TCP, and stays.
CONNECTED="import socket, time
listener = socket.create_server(('127.0.0.1', 7050))
ends = socket.create_connection(listener.getsockname()), listener.accept()
time.sleep(1000)"

# said_of PID ID: `smc why` says that of a TCP socket of the process.
said_of() {
	within 20 why_is "$1" "$2"
	local code=$?
	cat /tmp/why
	return $code
}

why_is() {
	"$BIN/smc" why --pid "$1" >/tmp/why
	[ $? = 3 ] && grep -q "^  id:     $2\$" /tmp/why
}

# before_switch: a program that was there before its cgroup was switched.
before_switch() {
	sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$CGROUPS/chosen/below" python3 -c "$CONNECTED" &
	local program=$! code
	said_of $program NOT_SMC/not-run && smc switch add --cgroup /chosen && said_of $program NOT_SMC/before-switch &&
		in_ns a "$BIN/smc" why --pid $program | grep -q NOT_SMC/before-switch && past_bpf
	code=$?
	kill $program
	wait $program 2>/dev/null
	smc switch off && return $code
}

# past_bpf: a program under `smc run --bpf` has a TCP socket of the shell that started it.
past_bpf() {
	smc run --bpf sleep 1000 5<>/dev/tcp/127.0.0.1/7050 &
	local program=$! code
	said_of $program NOT_SMC/past-bpf
	code=$?
	kill $program
	wait $program 2>/dev/null
	return $code
}

# gone_id: of the cgroup that is switched and was removed.
gone_id() {
	smc switch show | sed -n 's/^cgroup \(id [0-9]* (gone)\)$/\1/p'
}

# short_lived: a cgroup that is switched is removed.
short_lived() {
	mkdir "$CGROUPS/short" && smc switch add --cgroup /short && rmdir "$CGROUPS/short" && [ -n "$(gone_id)" ]
}

# many COUNT: switches so many cgroups, in one command.
many() {
	local names
	mapfile -t names < <(printf -- '--cgroup\n/many/%s\n' $(seq "$1"))
	smc switch add "${names[@]}"
}

make_many() {
	mkdir -p "$CGROUPS"/many/{1..1025}
}

remove_many() {
	rmdir "$CGROUPS"/many/*/ "$CGROUPS/many"
}

# The tests ----------------------------------------------------------------------------------

require "file systems" mounts
require "RDMA modules load" load_rdma
require "programs build" build
check "the switch wants the module" fails_saying "module is not loaded" smc run --bpf true
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe

# AF_INET 2, AF_SMC 43, IPPROTO_SMC 256.
check "a program chooses among listeners of TCP" in_ns b "$WORK/reuseport" 2 0
check "of AF_SMC" in_ns b "$WORK/reuseport" 43 0
check "of IPPROTO_SMC" in_ns b "$WORK/reuseport" 2 256
check "a map takes a listener of TCP" in_ns b "$WORK/reuseport" 2 0 map
check "but none of AF_SMC" fails_saying "update: 524" in_ns b "$WORK/reuseport" 43 0 map
check "nor of IPPROTO_SMC" fails_saying "update: 524" in_ns b "$WORK/reuseport" 2 256 map

both "IPPROTO_SMC" by_rdma -smc plainly
both "nothing is switched" by_tcp '' plainly
check "nor a socket of MPTCP" by_tcp "$BYTES" exchange raw -mptcp plainly

both "smc run --bpf" by_rdma '' smc run --bpf
check "smc run --bpf: a socket of MPTCP" by_rdma "$BYTES" exchange raw -mptcp smc run --bpf
check "the exit code is the command's" exit_code
check "and 127 or 126 where it cannot be started" not_started
check "a SIGPIPE that is ignored stays so" ignored_pipe 1 --ignore-signal=PIPE
check "and one that is not" ignored_pipe 0 --default-signal=PIPE
check "nothing stays" within 10 no_run_cgroups
check "who may not is told" fails_saying "BPF programs need root" \
	setpriv --reuid=65534 --clear-groups smc switch add --program x

mkdir -p "$CGROUPS/chosen/below" "$CGROUPS/other"
check "a cgroup is chosen" smc switch add --cgroup /chosen
both "in the cgroup" by_rdma '' in_cgroup chosen
check "in one below" by_rdma "$BYTES" exchange raw '' in_cgroup chosen/below
check "not in another" by_tcp "$BYTES" exchange raw '' in_cgroup other
check "a program is chosen" smc switch add --program raw
check "by name" by_rdma "$BYTES" exchange raw '' in_cgroup other
check "not by another" by_tcp "$BYTES" exchange static '' in_cgroup other
check "another program is chosen" smc switch add --program renamed
check "by the program's name, whatever that of the thread is" socket_of_thread worker 256
check "and taken off" smc switch del --program renamed
check "not by the name of a thread" socket_of_thread raw 6
check "both are shown" shown "The switch is on." "cgroup /chosen" "program raw"
check "no such cgroup" fails_saying "/none" smc switch add --cgroup /none
check "no such program" fails_saying "not switched" smc switch del --program static
check "the cgroup is taken off" smc switch del --cgroup "$CGROUPS/chosen"
check "not in it any more" by_tcp "$BYTES" exchange static '' in_cgroup chosen
check "the module unloads" within 20 unload_smc
check "without it the program has TCP" exchange raw '' plainly
require "the module loads again" load_smc
check "and has SMC again" by_rdma "$BYTES" exchange raw '' plainly
check "the program is taken off" smc switch del --program raw
check "the root of all cgroups is chosen" smc switch add --cgroup "$CGROUPS"
check "and is shown" shown "The switch is on." "cgroup /"
check "and taken off by the name that is shown" smc switch del --cgroup /
check "then the switch is off" shown "The switch is off."
check "nothing is switched any more" by_tcp "$BYTES" exchange raw '' plainly

# A file takes the place of what a file listed before, and of nothing else.
check "a program is chosen by a command" smc switch add --program added
printf '# by a file\nprogram raw\ncgroup /chosen\n' >/tmp/switch.conf
check "a file is loaded" smc switch load /tmp/switch.conf
check "by it" by_rdma "$BYTES" exchange raw '' in_cgroup other
check "what it lists is shown" shown "The switch is on." "cgroup /chosen" "program added" "program raw"
echo 'cgroup /other' >/tmp/switch.conf
check "another file takes its place" smc switch load /tmp/switch.conf
check "with what it lists" shown "The switch is on." "cgroup /other" "program added"
echo 'cgroup /none' >>/tmp/switch.conf
check "one that lists no cgroup is refused" fails_saying "/none" smc switch load /tmp/switch.conf
check "and changes nothing" shown "The switch is on." "cgroup /other" "program added"
check "the service stops" smc switch load /dev/null
check "and leaves what was added" shown "The switch is on." "program added"
check "that is deleted" smc switch del --program added
echo 'program raw' >/tmp/switch.conf
check "a file is loaded again" smc switch load /tmp/switch.conf
echo '# program raw' >/tmp/switch.conf
check "one that lists nothing is loaded" smc switch load /tmp/switch.conf
check "and switches nothing" shown "The switch is off."

require "the first namespace has its own address" ip link set lo up
check "a program whose sockets are older than the switch, or another's" before_switch
check "two commands at the same time" both_at_once
smc switch show >/tmp/switch.conf
check "all is taken off" smc switch off
check "what was shown is loaded" smc switch load /tmp/switch.conf
check "and is shown again" shown "The switch is on." "cgroup /chosen" "cgroup /other"
check "all is taken off again" smc switch off
check "a switched cgroup is removed" short_lived
check "it is deleted by its id" smc switch del --cgroup "$(gone_id)"
check "then the switch is off" shown "The switch is off."
check "another switched cgroup is removed" short_lived
check "the next addition" smc switch add --cgroup /chosen
check "forgets it" shown "The switch is on." "cgroup /chosen"
check "all is taken off once more" smc switch off
require "many cgroups" make_many
check "no more than fit" fails_saying "no more than 1024 cgroups" many 1025
check "then nothing is switched" shown "The switch is off."
check "as many as fit" many 1024
require "they are removed" remove_many
check "one in their place" smc switch add --cgroup /chosen
check "which is all" shown "The switch is on." "cgroup /chosen"
check "it is taken off" smc switch off

check "messages are traced" messages_told exchange raw -smc plainly
check "no buffer stays" no_instances
check "module unloads again" within 20 unload_smc
finish
