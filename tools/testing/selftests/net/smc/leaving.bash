# SPDX-License-Identifier: GPL-2.0
# An application sends and goes, in each way that there is, and the one at the other end reads slowly: every byte
# that its send() took is read, or an error is, never a clean end before.

. "$LIB"
. "${LIB%/*}/pair.bash"

# How the one who sends goes, after how many milliseconds the other one begins to read, and whether the connection
# may end in an error.
WAYS=(
	"full-exit 1000 -"
	"full-kill 1000 -"
	"full-close 3000 -"
	"full-half 3000 -"
	"full-half-exit 3000 -"
	"full-abort 1000 may_fail"
	"full-unread 1000 may_fail --send 10"
	"full-half-unread 3500 may_fail --send 10"
	"just-exit 1000 -"
	"small-exit 0 -"
	"small-exit 500 -"
	"more-exit 0 -"
	"small-close 0 -"
	"full-exit 1000 - --only 20000"
)

# leaving PORT OUTPUT OPTION...: one end of a connection; says what it did in a file that both guests have.
leaving() {
	local port=$1 output=$OUT/$2 address=$LOCAL_IP
	shift 2
	[[ " $* " == *" --listen "* ]] || address=$PEER_IP
	"$BIN/smctest" --addr="$address" --port="$port" --deadline 60 --expect smc leaving "$@" >"$output" 2>&1
}

# ends FIRST give|take [--listen]: this guest's end of one connection for each way, on ports from FIRST on, in the
# background.
ends() {
	local first=$1 role=$2 i how wait _ options
	shift 2
	for i in "${!WAYS[@]}"; do
		read -r how wait _ options <<<"${WAYS[i]}"
		# The options are words.
		# shellcheck disable=SC2086
		case $role in
		give) leaving $((first + i)) "gave.$((first + i))" "$@" give --how "$how" & ;;
		take) leaving $((first + i)) "took.$((first + i))" "$@" take --wait "$wait" $options & ;;
		esac
	done
}

# are_listening FIRST: all servers in this guest.
are_listening() {
	[ "$(ss -Htln "sport >= :$1 and sport < :$(($1 + ${#WAYS[@]}))" | wc -l)" = ${#WAYS[@]} ]
}

# behind OUTPUT WORD: what stands behind the word in the output.
behind() {
	sed -n "s/^# $2 //p" "$OUT/$1"
}

# have_ended FIRST: all connections.
have_ended() {
	local i
	for i in "${!WAYS[@]}"; do
		[ -n "$(behind "took.$(($1 + i))" took)" ] || return
	done
}

# judge PORT MAY_FAIL TAKER: compares what was given and what was taken.
judge() {
	local gave took how
	gave=$(behind "gave.$1" gave)
	read -r took how <<<"$(behind "took.$1" took)"
	CELL="$took of $gave, $how"
	case $how in
	# The C module tells no reader of an abort.
	end) [ "$took" = "$gave" ] || [ "$2$3" = may_failat_c ] ;;
	left) true ;;
	error*) [ "$2" = may_fail ] ;;
	*) false ;;
	esac
}

# all_ways FIRST COLUMN GIVER TAKER SERVER CLIENT: the giver and the taker, and their roles, at `at_c` or `at_ours`.
all_ways() {
	local first=$1 column=$2 giver=$3 taker=$4 server=$5 client=$6 role i may_fail
	role=take
	[ "$giver" != "$server" ] || role=give
	"$server" ends "$first" $role --listen
	check "$column: servers" "$server" within 20 are_listening "$first"
	role=give
	[ "$giver" != "$server" ] || role=take
	"$client" ends "$first" $role
	check "$column: all connections end" within 50 have_ended "$first"
	for i in "${!WAYS[@]}"; do
		read -r _ _ may_fail _ <<<"${WAYS[i]}"
		check "$column: ${WAYS[i]}" judge $((first + i)) "$may_fail" "$taker"
		echo "# table | sends and goes | ${WAYS[i]} | $column | $CELL"
	done
}

require_pair
follow
