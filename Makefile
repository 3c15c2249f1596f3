# SPDX-License-Identifier: GPL-2.0
#
# What users and developers type. The module's own build rules are in Kbuild; kernels, guests and
# tests are the work of `cargo xtask`.

KDIR ?= /lib/modules/$(shell uname -r)/build
MO ?=
ARGS ?=
PREFIX ?= /usr/local
DESTDIR ?=
# Of the machine, whatever the prefix.
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
UDEVDIR ?= $(PREFIX)/lib/udev/rules.d
VERSION := $(shell sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)

# Where bindgen is, if the machine's PATH has none that fits.
CACHE := $(or $(SMC_CACHE),$(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME)/smc-rs),$(HOME)/.cache/smc-rs)
export PATH := $(PATH):$(CACHE)/tools/bin:$(HOME)/.cargo/bin

# What root installs is built by the owner of the tree, with the compilers and folders of that user, as it was if it is
# there already; nothing of root's is left in the tree. BUILDER=root: by root.
by_builder = $(MAKE) --no-print-directory
ifeq ($(shell id -u),0)
BUILDER ?= $(shell stat -c %U .)
ifneq ($(filter-out root nobody UNKNOWN,$(BUILDER)),)
home := $(shell getent passwd '$(BUILDER)' | cut -d : -f 6)
by_builder = runuser -u '$(BUILDER)' -- env -u XDG_CACHE_HOME HOME='$(home)' PATH='$(home)/.cargo/bin':"$$PATH" \
	$(MAKE) --no-print-directory
endif
endif

xtask := tools/xtask/run

.DEFAULT_GOAL := module
.PHONY: help module kdir install install-built uninstall headers_install tools install-tools uninstall-tools install-dkms uninstall-dkms deb clean setup test test-host vmtest demo apps bench shell fuzz lint check soak mutants kcsan arm64 coverage

help:
	@echo 'Without privileges, on Debian 12 or 13 (packages are installed with apt):'
	@echo '  make demo        see it work, in a virtual machine'
	@echo '  make shell       a shell in such a machine: two namespaces, soft RDMA, the module loaded'
	@echo '  make test        all tests: on the host, then in virtual machines'
	@echo '  make test-host   those on the host only'
	@echo '  make vmtest      those in virtual machines only (ARGS="name ..." for some of them)'
	@echo '  make apps        nginx, redis, PostgreSQL and more over SMC, and socket tests of CPython and others'
	@echo '  make bench       figures, against the C module and TCP'
	@echo '  make kcsan       data races: some of the tests on a kernel with KCSAN (ARGS="name ..." for fewer)'
	@echo '  make arm64       some of the tests on arm64 with pages of 64 KiB (ARGS="name ..." for fewer)'
	@echo '  make coverage    which lines of the module the lying peer reaches (ARGS="name ..." for other tests)'
	@echo '  make soak        the tests again and again (ARGS="--minutes 60")'
	@echo '  make fuzz        random input for the protocol core (ARGS="--seconds 600")'
	@echo '  make mutants     which test notices each of the faults in tests/mutants (hours)'
	@echo '  make lint        the rules that no compiler checks'
	@echo '  make check       format, clippy, lint, host tests: before each commit'
	@echo '  make setup       only install what the above need'
	@echo 'For the running kernel, or for the one built in KDIR=...:'
	@echo '  make             build smc.ko'
	@echo '  make install     build it and install it below /lib/modules (as root)'
	@echo '  make tools       build the smc command, its manual pages and completions (below out/tools)'
	@echo '  make install-tools   install them below PREFIX=/usr/local (as root), with the names of smc-tools'
	@echo '  make headers_install   install linux/smc_rs.h for C programs there (as root; install-tools does it, too)'
	@echo '  make install-dkms    install the source for DKMS below /usr/src (as root), for dkms install --force smc-rs/$(VERSION)'
	@echo '  make uninstall, uninstall-tools, uninstall-dkms    remove what those have installed (as root)'
	@echo '  make deb         packages for Debian 13, in out/deb: the source for DKMS, the tools'
	@echo '  make clean       remove what builds left behind'

# Where metadata of the kernel's Rust crates have to be made, the folder that has them takes the place of KDIR.
module:
	@tools/kernel/check-kdir '$(KDIR)' '$(CACHE)'
	+@kdir=$$(tools/kernel/rust-kit '$(KDIR)' '$(CACHE)') && tools/kernel/kbuild "$$kdir" '$(MO)' modules
	@tools/kernel/check-symbols '$(or $(MO),.)/smc.ko'

kdir:
	@tools/kernel/rust-kit '$(KDIR)' '$(CACHE)'

install:
	+@$(by_builder) module
	+@$(MAKE) --no-print-directory install-built

# Of what was built before.
install-built:
	+@kdir=$$($(by_builder) -s kdir) && \
		tools/kernel/kbuild "$$kdir" '$(MO)' modules_install INSTALL_MOD_DIR=updates && \
		tools/kernel/depmod "$$kdir" '$(INSTALL_MOD_PATH)'
	@if [ -z '$(INSTALL_MOD_PATH)' ] && [ -e /sys/module/smc/refcnt ]; then \
		echo 'Installed. A module smc is loaded: `rmmod smc_diag; rmmod smc; modprobe smc` has this one take its place.'; \
	else \
		echo 'Installed. `modprobe smc` now loads this module; `make help` lists more.'; \
	fi

# A module that is loaded stays.
uninstall:
	@tools/kernel/uninstall '$(KDIR)' '$(INSTALL_MOD_PATH)'

# The kernel's own word for the same thing.
headers_install:
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include/linux include/uapi/linux/smc_rs.h

# The drop-in names are links: the command behaves like the tool that it is called as. libsmc-preload.so, where the
# dynamic linker searches, is what is preloaded by units and scripts that were written for smc-tools.
TOOLS := out/tools
NAMES := smcss smcr smcd smc_pnet smc_run
UNITS := smc-switch.service smc-policy.service smc-exporter.service
CONFIGURATION := switch.conf policy.conf
# cargo is told, since a user's configuration of it may name another folder.
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET)/release

# Not quiet, so that it is seen what a machine without clang leaves out.
tools:
	cargo build --release --target-dir '$(TARGET)' --package smc-tools --package smc-preload
	@$(RM) -r $(TOOLS) && mkdir -p $(TOOLS)/man
	$(BUILT)/smc man --dir $(TOOLS)/man
	@for shell in bash fish zsh; do $(BUILT)/smc completions $$shell >$(TOOLS)/smc.$$shell || exit; done
	@for name in $(NAMES); do $(BUILT)/smc completions bash --tool $$name >$(TOOLS)/$$name.bash || exit; done

# The units are off until they are enabled, and what an administrator wrote into the configuration stays. By its name
# libsmc-preload.so is found once the dynamic linker has been told, if its folder is one of those where that searches.
# smc-tools may have a file `smc` among the completions; bash looks for `smc.bash`, too.
install-tools: headers_install
	+@$(by_builder) tools
	install -D -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/smc
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/smc-rs $(BUILT)/libsmc_preload.so
	@for name in $(NAMES); do ln -sf smc $(DESTDIR)$(PREFIX)/bin/$$name || exit; done
	ln -sf smc-rs/libsmc_preload.so $(DESTDIR)$(PREFIX)/lib/libsmc-preload.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(TOOLS)/man/*.1
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man8 $(TOOLS)/man/*.8
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(TOOLS)/smc.bash
	@for name in $(NAMES); do \
		install -D -m 644 $(TOOLS)/$$name.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name || exit; \
	done
	install -D -m 644 $(TOOLS)/smc.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/smc.fish
	install -D -m 644 $(TOOLS)/smc.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_smc
	install -D -m 644 -t $(DESTDIR)$(UNITDIR) $(addprefix packaging/,$(UNITS))
	sed -i 's|^\(Exec[A-Za-z]*=\)smc |\1$(PREFIX)/bin/smc |' $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	install -D -m 644 -t $(DESTDIR)$(UDEVDIR) packaging/60-smc.rules
	@for name in $(CONFIGURATION); do \
		[ -e $(DESTDIR)$(SYSCONFDIR)/smc/$$name ] || \
			install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/smc packaging/$$name || exit; \
	done
	@export PATH="$$PATH:/usr/sbin:/sbin"; \
		[ -n '$(DESTDIR)' ] || [ "$$(id -u)" != 0 ] || ! command -v ldconfig >/dev/null || ldconfig

# The configuration stays if it is not as it was installed. On this machine, by root, what outlives the files ends
# first: units that are enabled, and the BPF program of `smc switch`.
uninstall-tools:
	@[ -z '$(DESTDIR)' ] && [ "$$(id -u)" = 0 ] || exit 0; \
	for unit in $(UNITS); do \
		[ ! -e '$(UNITDIR)'/$$unit ] || ! command -v systemctl >/dev/null || systemctl disable --now $$unit || true; \
	done; \
	[ ! -x '$(PREFIX)/bin/smc' ] || '$(PREFIX)/bin/smc' switch off || true
	$(RM) $(addprefix $(DESTDIR)$(PREFIX)/,$(addprefix bin/,smc $(NAMES)) \
		lib/smc-rs/libsmc_preload.so lib/libsmc-preload.so include/linux/smc_rs.h \
		$(addprefix share/man/man1/,smc.1 smc-*.1) \
		$(addprefix share/man/man8/,$(addsuffix .8,$(NAMES) smcr-* smcd-*)) \
		$(addprefix share/bash-completion/completions/,smc.bash $(NAMES)) \
		share/fish/vendor_completions.d/smc.fish share/zsh/site-functions/_smc) \
		$(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS)) $(DESTDIR)$(UDEVDIR)/60-smc.rules
	@-rmdir $(DESTDIR)$(PREFIX)/lib/smc-rs
	@for name in $(CONFIGURATION); do \
		! cmp -s packaging/$$name $(DESTDIR)$(SYSCONFDIR)/smc/$$name || $(RM) $(DESTDIR)$(SYSCONFDIR)/smc/$$name; \
	done
	@rmdir $(DESTDIR)$(SYSCONFDIR)/smc 2>/dev/null || true

# Just what the module is built from, without what builds left there, nor what an older tree had installed.
DKMS_SOURCE = $(DESTDIR)/usr/src/smc-rs-$(VERSION)
install-dkms:
	@$(RM) -r $(DKMS_SOURCE) && mkdir -p $(DKMS_SOURCE)
	tar -cf - --exclude='*.o' --exclude='*.mod*' --exclude='*.rmeta' --exclude='.*.cmd' --exclude='.*.d' \
		--exclude='*_generated.rs' Kbuild Makefile dkms.conf include net rust \
		tools/kernel/check-kdir tools/kernel/check-symbols tools/kernel/kbuild tools/kernel/rust-kit | \
		tar -C $(DKMS_SOURCE) --no-same-owner -xf -
	@[ -n '$(DESTDIR)' ] || echo 'Installed. `dkms install --force smc-rs/$(VERSION)` builds it, also where it was built before.'

# With what DKMS has built of it, and the metadata that were made for that.
uninstall-dkms:
	@export PATH="$$PATH:/usr/sbin:/sbin"; \
		[ -n '$(DESTDIR)' ] || ! dkms status smc-rs/$(VERSION) 2>/dev/null | grep -q . || dkms remove smc-rs/$(VERSION) --all
	$(RM) -r $(DKMS_SOURCE) $(DESTDIR)/var/cache/smc-rs

# In a copy of the tree, as dpkg-buildpackage leaves its results beside it. A cargo that is no package builds, too.
deb:
	@$(RM) -r out/deb && mkdir -p out/deb/smc-rs
	@tar -cf - --exclude=./.git --exclude=./out --exclude=./target . | tar -C out/deb/smc-rs -xf -
	cd out/deb/smc-rs && CARGO_TARGET_DIR='$(CURDIR)/target/deb' \
		dpkg-buildpackage --build=binary --no-sign $(if $(wildcard /usr/bin/cargo),,--no-check-builddeps)
	@$(RM) -r out/deb/smc-rs && ls -l out/deb/*.deb

clean:
	$(RM) -r out target tests/fuzz/target
	@if [ -d '$(KDIR)' ]; then tools/kernel/kbuild '$(KDIR)' '$(MO)' clean; fi

setup lint shell demo:
	@$(xtask) $@ $(ARGS)

test:
	@$(xtask) test $(ARGS)

test-host:
	@$(xtask) test --host

vmtest:
	@$(xtask) test --guests $(ARGS)

apps bench soak fuzz mutants kcsan arm64 coverage:
	@$(xtask) $@ $(ARGS)

check:
	cargo fmt --all --check
	rustfmt --edition 2021 --check net/smc/lib.rs rust/kernel/lib.rs
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	@$(xtask) lint
	@$(xtask) test --host
