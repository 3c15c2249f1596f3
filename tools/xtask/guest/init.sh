# SPDX-License-Identifier: GPL-2.0
# First program of a guest. The root is the host's, read only; what must be written to is
# laid over it in memory. The settings VM_* and the functions vm_* are written above this.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TMPDIR=/tmp TERM="${TERM:-dumb}" LC_ALL=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
mountpoint -q /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
ln -sf fd/2 /dev/stderr

# The checkout and the kernels may lie below a folder that memory is laid over.
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir /mnt/root /mnt/out
mount --bind / /mnt/root
for dir in /tmp /run /var/tmp; do
	mount -t tmpfs -o mode=1777 tmpfs "$dir"
done
vm_restore() {
	[ -e "$1" ] && return
	mkdir -p "$1"
	mount --bind "/mnt/root$1" "$1"
}
vm_keep vm_restore
umount -l /mnt/root

vm_share() {
	if [ "$VM_SHARE_TYPE" = hostfs ]; then
		# The mount calls that newer programs prefer take no option without a name.
		LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs -o "$VM_SHARE" none /mnt/out
	else
		mount -t 9p -o trans=virtio,version=9p2000.L,cache=none share /mnt/out
	fi
}
mkdir -p /run/netns
hostname "$(echo "$VM_NAME" | tr _ -)"
ip link set lo up
# A task that hangs is to be seen before the run is stopped.
echo 30 >/proc/sys/kernel/hung_task_timeout_secs 2>/dev/null

vm_off() {
	sync
	echo "$VM_OFF" >/proc/sysrq-trigger
	sleep 10
}

# An object counts as leaked when two scans at least five seconds after it was made miss it.
vm_leaks() {
	leaks=/sys/kernel/debug/kmemleak
	case $FLAVOUR in um-debug | um-no-smc) ;; *) return ;; esac
	sleep 5
	# Refused if the checker has switched itself off.
	{ echo scan && echo scan; } >$leaks || echo "smc-vm: kmemleak: off"
	# What the kernel itself made before its first program is none of the script's doing, and what the C
	# module forgets none of ours.
	awk -v of_c="$([ "$MODULE" = c ] && echo 1)" '
		function tell() {
			if (text !~ /comm "swapper\// && !(of_c && text ~ / \[smc(_diag)?\]/)) printf "%s", text
			text = ""
		}
		/^unreferenced/ { tell() }
		{ text = text "smc-vm: kmemleak: " $0 "\n" }
		END { tell() }' $leaks
}

export OUT=/mnt/out
vm_env
vm_share || {
	echo "smc-vm: the folder for what the guest leaves cannot be mounted" >/dev/kmsg
	vm_off
}
cd /tmp || exit
if [ -n "$VM_INTERACTIVE" ]; then
	export TERM=linux
	vm_main setsid --ctty --wait <"$VM_CONSOLE" >"$VM_CONSOLE" 2>&1
	vm_off
fi
exec <"/dev/null" >"$VM_CONSOLE" 2>&1
# From here on the log is judged; what the kernel says while it boots is not the script's doing.
echo "smc-vm: begin" >/dev/kmsg
if [ -e /proc/lockdep_stats ] && ! grep -q 'debug_locks: *1' /proc/lockdep_stats; then
	echo "BUG: lockdep is off" >/dev/kmsg
fi
# The boot, which is not judged, goes without.
case $FLAVOUR in
x86_64-kcsan)
	kcsan=/sys/kernel/debug/kcsan
	{ echo on >$kcsan && grep -q '^enabled: 1' $kcsan; } || echo "BUG: KCSAN is off" >/dev/kmsg
	;;
esac
vm_main
code=$?
printf '\nsmc-vm: exit %d\n' "$code"
vm_leaks
echo "smc-vm: end"
vm_off
