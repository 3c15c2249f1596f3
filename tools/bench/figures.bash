# SPDX-License-Identifier: GPL-2.0
# What the scripts that measure share. SYSTEM is what they measure.

die() {
	echo "$SYSTEM: $*"
	exit 1
}

# figure KEY VALUE
figure() {
	case $2 in
	'' | *[!0-9.]*) die "$1: no figure in \"$2\"" ;;
	esac
	echo "$SYSTEM $1 $2"
	echo "$1 $2" >>"$OUT/figures"
}
