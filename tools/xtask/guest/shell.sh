#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um
# timeout: 86400
# A shell in a machine where SMC works: namespaces `a` and `b` on one wire, soft RDMA at both ends.

. "$LIB"
load_rdma && load_smc && up_netns && up_rxe || exit
cat <<TEXT

Two namespaces, a ($IP_A) and b ($IP_B), each with a soft RDMA device; AF_SMC is there.
  ip netns exec a redis-server --protected-mode no --save ''   a program of your choice ...
  ip netns exec a smc run iperf3 -s -D      ... over SMC
  ip netns exec b smc run iperf3 -c $IP_A
  ip netns exec b smc ss                    what is connected
  exit                                      ends the machine

TEXT
export PS1='smc guest \w# '
cd /tmp && exec bash --norc -i
