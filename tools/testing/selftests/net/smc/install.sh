#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 240
# cpus: 1
# modules: installed
# What an administrator does: the module, installed by make and by DKMS, is found before the C module of the same name,
# and loads by itself when a program asks for SMC in any way. Once it is removed, the C module is found again.

. "${LIB:=${0%/*}/lib.sh}"

# file NAME: what modprobe loads for it, after what it needs.
file() {
	modprobe -D "$1" 2>/dev/null | sed -n '$s/^insmod \([^ ]*\) *$/\1/p'
}

# finds FOLDER: both modules, below /lib/modules/RELEASE.
finds() {
	local name
	for name in smc smc_diag; do
		[ "$(file $name)" = "/lib/modules/$(uname -r)/$1/$name.ko" ] || { echo "# $(file $name)"; return 1; }
	done
}

is_loaded() {
	grep -q "^$1 " /proc/modules
}

not_loaded() {
	! is_loaded smc || modprobe -r smc
}

# loads WHAT COMMAND...: a module is not there, and is when the command has run; which succeeds.
loads() {
	local what=$1
	shift
	require "it is not loaded before $what" not_loaded
	check "$what works" "$@"
	check "$what loads the module" is_loaded smc
}

kind() {
	"$BIN/smctest" --family "$1" semantics --only "domain, type and protocol" >/dev/null
}

sockets_as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$BIN/smctest" semantics \
		--only "domain, type and protocol" >/dev/null
}

kind6() {
	"$BIN/smctest" --family "$1" --addr ::1 semantics --only "domain, type and protocol" >/dev/null
}

# by_itself BY: the module loads when something asks for it.
by_itself() {
	loads "$1: AF_SMC" kind smc
	loads "$1: AF_SMC by an ordinary user" sockets_as_nobody
	loads "$1: IPPROTO_SMC" kind ipproto
	loads "$1: IPPROTO_SMC over IPv6" kind6 ipproto
	loads "$1: TCP_ULP" kind ulp
	loads "$1: generic netlink" "$BIN/smc" ueid show
	loads "$1: the pnet table" "$BIN/smc" pnet show
	loads "$1: smc run" "$BIN/smc" run "$BIN/smctest" --family tcp path
	loads "$1: modprobe smc_diag" modprobe smc_diag
	check "$1: the version is that of the tools" [ "smc $(cat /sys/module/smc/version)" = "$("$BIN/smc" --version)" ]
	check "$1: modprobe -r smc_diag" modprobe -r smc_diag
	check_not "$1: which removes smc, too" is_loaded smc
}

no_depmod_complaint() {
	sed 's/^/# /' "$INSTALLED/depmod"
	[ -e "$INSTALLED/depmod" ] && [ ! -s "$INSTALLED/depmod" ]
}

check "depmod reports nothing" no_depmod_complaint

require "folders of make" lib_modules "$INSTALLED/make"
check "make install: found first" finds updates
by_itself "make install"
require "others" umount /lib/modules

require "folders of make, for headers" lib_modules "$INSTALLED/headers"
check "make install with headers: found first" finds updates
require "again others" umount /lib/modules

require "folders after make uninstall" lib_modules "$INSTALLED/uninstalled"
check "make uninstall: the C module is found" finds kernel/net/smc
require "others than that" umount /lib/modules

require "folders of DKMS" lib_modules "$INSTALLED/dkms"
check "DKMS: found first" finds updates/dkms
loads "DKMS: AF_SMC" kind smc
check "DKMS: modprobe -r smc" modprobe -r smc
require "others again" umount /lib/modules

require "folders after removal" lib_modules "$INSTALLED/removed"
check "removed: the C module is found" finds kernel/net/smc
finish
