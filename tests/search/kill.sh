#!/bin/sh
# kill.sh DISTSIM FILE [N]: SIGKILL a sweep of FILE N times (10; $DISTSIM_TEST_KILLS says another), each time at another instant,
# resume it, every second time after a resume that is killed too, and compare with a sweep that was left alone. The
# table is the beginning of the whole one at any time. Prints where it was killed; exits 1 at the first difference.
distsim=$1 file=$2 n=${DISTSIM_TEST_KILLS:-${3:-10}}
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
sweep() { "$distsim" sweep "$file" -I scenarios -q -t 2 "$@" 2>>"$scratch/errors"; }
before=$(date +%s%N)
sweep -o "$scratch/whole.csv" || exit 3
took=$(($(date +%s%N) - before))
whole=$(wc -c <"$scratch/whole.csv")
table=$scratch/killed.csv

fail() {
    echo "killed after $left of $whole bytes: $1"
    cat "$scratch/errors"
    exit 1
}

# kill_at SHARE OPTION: a sweep that is killed after this share of the time that it takes.
kill_at() {
    "$distsim" sweep "$file" -I scenarios -q -t 2 -o "$table" $2 2>>"$scratch/errors" &
    pid=$!
    sleep "$(echo "$took $1" | awk '{ print $1 * 1e-9 * $2 / 400 }')"
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    left=0
    [ -e "$table" ] && left=$(wc -c <"$table")
    [ ! -e "$table" ] || head -c "$left" "$scratch/whole.csv" | cmp -s - "$table" || fail "no beginning"
}

i=0 kills=0
while [ "$kills" -lt "$n" ]; do
    rm -f "$table"*
    kill_at $((i * 311 % 400))
    kills=$((kills + 1))
    if [ $((i % 2)) = 1 ] && [ "$kills" -lt "$n" ]; then
        kill_at $((i * 173 % 400)) --resume
        kills=$((kills + 1))
    fi
    sweep --resume -o "$table" || fail "not resumed"
    cmp "$scratch/whole.csv" "$table" || fail "differs"
    printf '%s ' "$left"
    i=$((i + 1))
done
echo "of $whole bytes: $kills kills, $i tables, all as the whole one"
