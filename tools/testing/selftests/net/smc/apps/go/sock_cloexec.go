// SPDX-License-Identifier: GPL-2.0

// The file of this name in Go's package net, for programs whose TCP sockets are to be SMC's: Go calls no C library, so
// `smc run` does not reach it. Used by `go test -overlay`.

package net

import (
	"os"
	"syscall"
)

const (
	ipprotoSMC   = 256
	ipprotoMPTCP = 262
)

// sysSocket is socket(2), with IPPROTO_SMC for stream sockets of IP if GO_NET_SMC is set. Later versions of Go ask for
// MPTCP where they listen.
func sysSocket(family, sotype, proto int) (int, error) {
	if _, smc := syscall.Getenv("GO_NET_SMC"); smc && sotype == syscall.SOCK_STREAM && (proto == 0 || proto == ipprotoMPTCP) &&
		(family == syscall.AF_INET || family == syscall.AF_INET6) {
		proto = ipprotoSMC
	}
	s, err := socketFunc(family, sotype|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	return s, nil
}
