#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 300
# cpus: 1
# The scripts run under kselftest: installed from a kernel tree, with the modules where a machine has them.

. "$LIB"

HERE=${LIB%/*}
TREE=/tmp/tree
INSTALLED=/tmp/kselftest
SELFTESTS=tools/testing/selftests

# tree: of a kernel tree what kselftest needs, and ours laid over it.
tree() {
	mkdir -p $TREE/$SELFTESTS/net $TREE/scripts && cp "$KMODS"/source/scripts/subarch.include $TREE/scripts &&
		cp -r "$KMODS"/source/$SELFTESTS/{Makefile,lib.mk,kselftest,kselftest.h,run_kselftest.sh} $TREE/$SELFTESTS &&
		cp -r "$HERE" $TREE/$SELFTESTS/net/smc
}

install_tests() {
	make -C $TREE/$SELFTESTS TARGETS=net/smc INSTALL_DEP_TARGETS= SMC_BIN="$BIN" FORCE_TARGETS=1 \
		KHDR_INCLUDES= INSTALL_PATH=$INSTALLED install >/tmp/install.log 2>&1 || { cat /tmp/install.log; return 1; }
}

# install_modules: this kernel's, and ours, as a machine has them.
install_modules() {
	local release module
	release=$(uname -r)
	local modules=/tmp/modules/lib/modules/$release
	for module in $RDMA_MODULES drivers/infiniband/sw/siw/siw; do
		[ ! -e "$KMODS/$module.ko" ] || install -D -m 644 "$KMODS/$module.ko" "$modules/kernel/$module.ko" || return
	done
	install -D -m 644 -t "$modules/updates" "${SMC_KO%/*}"/smc{,_diag}.ko && depmod -b /tmp/modules "$release" &&
		lib_modules /tmp/modules
}

# runs SCRIPT: under kselftest, without what our runner sets.
runs() {
	env -i PATH="$PATH" HOME=/tmp $INSTALLED/run_kselftest.sh -t "net/smc:$1" >/tmp/run.log 2>&1
	grep "^# ok\|^ok\|^not ok\|# not ok" /tmp/run.log | tail -n 5 | sed 's/^/# /'
	grep -q "^ok 1 selftests: net/smc: $1" /tmp/run.log || { sed 's/^/# /' /tmp/run.log; return 1; }
}

require "a kernel tree" tree
require "make install" install_tests
require "modules are installed" install_modules
check "a script of one kernel" runs trace.sh
check "a script with connections" runs unread.sh
check "nothing is left" sh -c '! grep -q ^smc /proc/modules && ! ip netns list | grep -q .'
finish
