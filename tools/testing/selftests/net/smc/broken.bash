# SPDX-License-Identifier: GPL-2.0
# What scripts share in which RDMA packets stop while TCP goes on.

. "${LIB%/*}/moment.bash"

# lose AFTER [PREFIX...]: RDMA packets that come to this machine are lost after so many; the prefix is a command
# that gets there.
lose() {
	local after=$1
	shift
	"$@" nft -f - <<-EOT
		table inet broken {
			chain input {
				type filter hook input priority 0;
				udp dport 4791 numgen inc mod 1000000 >= $after drop
			}
		}
	EOT
}

# heal [PREFIX...]: they come again.
heal() {
	! "$@" nft list table inet broken >/dev/null 2>&1 || "$@" nft delete table inet broken
}

# cell LINE COLUMN COMMAND...: a check, and a cell of the table.
cell() {
	local line=$1 column=$2 code
	shift 2
	"$@" >/tmp/cell 2>&1
	code=$?
	sed 's/^/# /' /tmp/cell
	echo "# table | $TABLE | $line | $column | $(sed -n \
		-e 's/^greet: .* failed, \(.*\) over SMC, slowest \(.*\)/\1 over SMC, \2/p' \
		-e 's/^# next: greet: .* slowest \(.*\)/then \1/p' /tmp/cell | tail -n 2 | paste -sd, | sed 's/,/, /2')"
	check "$line, $column" [ $code = 0 ]
}
