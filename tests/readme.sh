#!/bin/sh
# readme.sh DISTSIM README: what the README shows is what the program prints. Every fenced block that
# begins with "$ build/distsim …" is run in the root of the repository and compared with the lines
# below it; a first line "…" stands for any beginning.
distsim=$1
readme=$2
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT

awk -v dir="$scratch" '
    /^```/ { inside = !inside; first = inside; if (!inside && n) close(file); next }
    inside && first && /^\$ build\/distsim/ { n++; file = sprintf("%s/%03d", dir, n); use = 1 }
    inside && first && !/^\$ build\/distsim/ { use = 0 }
    inside && use { print > file }
    { first = 0 }' "$readme"

failed=0
shown=0
for block in "$scratch"/[0-9]*; do
    [ -e "$block" ] || break
    shown=$((shown + 1))
    command=$(sed -n '1s,^\$ build/distsim,"$distsim",p' "$block")
    sed 1d "$block" >"$scratch/wanted"
    eval "$command" >"$scratch/got" 2>/dev/null
    if [ "$(head -n 1 "$scratch/wanted")" = "…" ]; then
        sed -i 1d "$scratch/wanted"
        tail -n "$(wc -l <"$scratch/wanted")" "$scratch/got" >"$scratch/end"
        mv "$scratch/end" "$scratch/got"
    fi
    if ! diff -u "$scratch/wanted" "$scratch/got"; then
        echo "differs: $command"
        failed=1
    fi
done
echo "$shown commands of $readme run"
[ "$failed" = 0 ] && [ "$shown" -gt 0 ]
