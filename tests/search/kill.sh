#!/bin/sh
# kill.sh DISTSIM FILE N: SIGKILL a sweep of FILE N times, each time at another instant, resume it, and compare
# with a sweep that was left alone. Prints where it was killed; exits 1 at the first difference.
distsim=$1 file=$2 n=$3
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
before=$(date +%s%N)
"$distsim" sweep "$file" -q -t 2 -o "$scratch/whole.csv"
took=$(($(date +%s%N) - before))
whole=$(wc -l <"$scratch/whole.csv")
i=0
while [ "$i" -lt "$n" ]; do
    rm -f "$scratch/killed.csv"
    "$distsim" sweep "$file" -q -t 2 -o "$scratch/killed.csv" &
    pid=$!
    sleep "$(echo "$took $i" | awk '{ print $1 * 1e-9 * ($2 * 311 % 400) / 400 }')"
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    left=0
    [ -e "$scratch/killed.csv" ] && left=$(wc -l <"$scratch/killed.csv")
    "$distsim" sweep "$file" -q --resume -o "$scratch/killed.csv"
    if ! cmp "$scratch/whole.csv" "$scratch/killed.csv"; then
        echo "killed after $left of $whole lines: differs"
        exit 1
    fi
    printf '%s ' "$left"
    i=$((i + 1))
done
echo "of $whole lines: identical $n times"
