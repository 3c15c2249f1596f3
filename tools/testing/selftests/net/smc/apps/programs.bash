# SPDX-License-Identifier: GPL-2.0
# What scripts share that run tests written in C over TCP, over SMC, and over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

# programs WAY MODULE ARGUMENT... -- [PREFIX...]: programs.py there, its outcomes below the module's name.
programs() {
	local way=$1 module=$2 kind=$3 arguments=()
	shift 3
	while [ "$1" != -- ]; do
		arguments+=("$1")
		shift
	done
	shift
	in_ns "$way" "$@" "$PYTHON" "$APPS/programs.py" "$kind" "$OUT/$way/$module" "${arguments[@]}"
}

# glib_tests FOLDER WAY MODULE [PREFIX...]: the program MODULE there, which reports in the format of GLib's tests.
glib_tests() {
	programs "$2" "$3" glib "$1/$3" -- "${@:4}"
}
