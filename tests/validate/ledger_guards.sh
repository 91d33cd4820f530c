#!/bin/sh
# ledger_guards.sh: each figure of a ledger, made worse by hand, fails ledger.sh; made better it passes.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
bad=0
row='| one | val | 10 | 2 | 5.00 % | 4.00 % | 8.00 % | 9.00 % | -3.00 % | 0.900 | 20.00 % (calib) | 80 % of 5 | 6.0 % | 90 % | 1 |'
printf '## all rows\n\n%s\n' "$row" >"$work/ledger.md"
try() { # WANTED-RC COLUMN VALUE
    printf '%s\n' "$row" | awk -F' *[|] *' -v c="$2" -v v="$3" '{ $c = v; out = "|"; for (i = 2; i < NF; i++) out = out " " $i " |"; print out }' >"$work/now"
    LEDGER=$work/ledger.md sh tests/validate/ledger.sh none compare "$work/now" >"$work/out"
    [ $? = "$1" ] || { echo "column $2 = $3: not $1"; bad=1; }
}
while read -r column worse better; do
    try 1 "$column" "$worse %"
    try 0 "$column" "$better %"
done <<'EOF'
4 9 11
5 3 1
6 5.06 4.9
7 4.06 3
8 8.06 7
9 9.06 8
10 3.06 +2.9
11 0.897 0.95
13 60 100
14 6.2 5
15 80 100
16 2 0
EOF
try 1 2 two # set and split
try 1 3 calib
try 1 6 -
sh tests/validate/ledger.sh none check >/dev/null 2>&1
[ $? = 2 ] || { echo "an unknown word is taken"; bad=1; }
exit $bad
