# SPDX-License-Identifier: GPL-2.0
# A transfer (`smctest integrity`) under which something is taken away, and what became of it. Its output is in
# /tmp/transfer.

# transfer_begins COUNTER COMMAND...: the command is a transfer in the background, its process id is in `transfer`, and it
# has moved a MiB by what the command COUNTER prints, and goes on.
transfer_begins() {
	local counter=$1 before
	shift
	before=$($counter) || return
	"$@" >/tmp/transfer 2>&1 &
	transfer=$!
	within 20 has_grown "$counter" "$before" && kill -0 "$transfer"
}

has_grown() {
	[ $(($($1) - $2)) -ge $((1 << 20)) ]
}

# errors: those that the ends of the last transfer had, by name, but for that of writing afterwards.
errors() {
	sed 's/os error 32)/EPIPE)/; s/os error 103)/ECONNABORTED)/; s/os error 104)/ECONNRESET)/; s/os error /E/' /tmp/transfer |
		grep -ow 'E[A-Z0-9]\{1,\}' | grep -v EPIPE | sort -u | xargs
}

# outcome CODE: in words.
outcome() {
	case $1 in
	0) echo whole ;;
	3) echo "wrong data" ;;
	124) echo hung ;;
	*) echo "ended with $(errors)" ;;
	esac
}

# ended_in_silence: an end of the last transfer, which has a line for each, had the end of the stream before all data and
# no error.
ended_in_silence() {
	grep -E 'the stream ended at|failed to fill' /tmp/transfer | grep -qvE 'os error 10[34]\)'
}

# is_sound CODE: the transfer ended, with no wrong byte, and otherwise as a connection ends whose link has failed
# (Documentation/hardware.md).
is_sound() {
	case $1 in
	0) return 0 ;;
	3 | 124) return 1 ;;
	esac
	case $(errors) in
	ECONNABORTED | ECONNRESET | "ECONNABORTED ECONNRESET") ended_in_silence || return 0 ;;
	esac
	sed "s/^/# /" /tmp/transfer
	return 1
}

# transfer_ends: the transfer in the background ends, and is sound.
transfer_ends() {
	local code
	wait "$transfer"
	code=$?
	echo "# the transfer: $(outcome $code)"
	is_sound $code
}
