#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3, x86_64-kcsan
# timeout: 240
# cpus: 1
# The SMC option in SYN and SYN-ACK, by TCP's hooks or by netfilter: on the wire when both ends speak SMC, and with
# whatever else may happen to these segments either SMC or plain TCP at both ends.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/syn_option.bash"

# losing FLAGS COMMAND...: the command, while the first segment with these flags is lost at end b.
losing() {
	local flags=$1 code
	shift
	in_ns b nft -f - <<-EOT
		table inet lost {
			chain prerouting {
				type filter hook prerouting priority -500;
				tcp flags & (syn|ack) == $flags quota until 100 bytes drop
			}
			chain postrouting {
				type filter hook postrouting priority 500;
				tcp flags & (syn|ack) == $flags quota until 100 bytes drop
			}
		}
	EOT
	"$@"
	code=$?
	in_ns b nft delete table inet lost
	return "$code"
}

# removing COMMAND...: the command, while end b removes the option from each SYN that comes.
removing() {
	local code
	in_ns b nft -f - <<-EOT
		table inet removed {
			chain prerouting {
				type filter hook prerouting priority -500;
				tcp flags & (syn|ack) == syn reset tcp option 254
			}
		}
	EOT
	"$@"
	code=$?
	in_ns b nft delete table inet removed
	return "$code"
}

# checksums WAY: of TCP, made by the device or by the kernel, which then also checks them.
checksums() {
	in_ns a ethtool -K wire_a tx "$1" && in_ns b ethtool -K wire_b tx "$1"
}

smc_path() {
	smctest --expect smc "$@" path
}

mapped_path() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="::ffff:$IP_B" --expect smc path
}

# A connection that is plain TCP at both ends, with data, none of which is of the handshake.
tcp_data() {
	smctest --expect tcp path && smctest --expect tcp integrity --mib 1
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a look at the options" watch_options

check "SYN and SYN-ACK have the option" options 1 1 smc_path
check "with IPv6" options 1 1 smctest6 --expect smc path
check "an IPv4 address in an IPv6 socket" options 1 1 mapped_path
check "a server without SMC gets it, and does not answer it" options 1 0 \
	smctest --family smc --server-family tcp --expect tcp path
check "a client without SMC gets none" options 0 0 smctest --family tcp --server-family smc --expect tcp path
require "checksums are made by the kernel" checksums off
check "they are right" options 1 1 smc_path
check "they are right with IPv6" options 1 1 smctest6 --expect smc path
require "checksums are made by the device again" checksums on
check "no timestamps" options 1 1 with_sysctl a net/ipv4/tcp_timestamps 0 smc_path
check "accurate ECN, which needs much room" options 1 1 with_sysctl a net/ipv4/tcp_ecn 3 with_sysctl b net/ipv4/tcp_ecn 3 smc_path
check "the first SYN is lost" options 1 1 losing syn smc_path
# The client's timer and the server's run out together.
check "the first SYN-ACK is lost" options 1+ 2+ losing "(syn|ack)" smc_path
check "SYN cookies: plain TCP" with_sysctl b net/ipv4/tcp_syncookies 2 tcp_data
check "the option is removed on its way: plain TCP" removing tcp_data
check "SMC afterwards" options 1 1 smc_path
check "module unloads" within 20 unload_smc
finish
