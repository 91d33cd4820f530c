#!/bin/sh
# left_out.sh FIT_PROFILES: how far measured collectives lie from fits that did not see their kind of
# link, number of nodes, group or size; and that sim/cost/collective.c has those percentiles.
cd "$(dirname "$0")/../.." || exit 2
fit=$1
list=tests/data/collectives/machines.csv
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

grep -v '^#' "$list" | tail -n +2 | while IFS=, read -r machine topology table profile; do
    [ -f "cost_profiles/$profile/collective_protocols.csv" ] || continue
    "$fit" left-out "tests/data/collectives/$topology" "cost_profiles/$profile" \
        "tests/data/collectives/$table" >"$work/out" || touch "$work/failed"
    sed "s/^/$machine,/" "$work/out" >>"$work/rows"
done
[ ! -f "$work/failed" ] || exit 1

echo '| left out | cases | machines | rows | p05 | p25 | p50 | p75 | p95 |'
echo '|---|---|---|---|---|---|---|---|---|'
for kind in link nodes group size; do
    sort -t, -k6,6g "$work/rows" | awk -F, -v kind=$kind '
        $2 == kind { ratio[++n] = $6; if (!case_[$1, $3, $5]++) cases++; if (!machine[$1]++) machines++ }
        END {
            printf "| %s | %d | %d | %d |", kind, cases, machines, n
            split("0.05 0.25 0.5 0.75 0.95", at, " ")
            for (p = 1; p <= 5; p++) {
                i = int(at[p] * n - 1e-9) + 1
                printf " %.2f |", ratio[i]
            }
            print ""
        }'
done | tee "$work/table"

# The constants, rounded to two digits.
awk -F'[|]' 'NR == FNR { if ($0 ~ /\[DS_SEEN_[A-Z]*\] = [{]0/) { s = $0; gsub(/.*DS_SEEN_|[^A-Za-z0-9_.,]/, " ", s); split(s, w, /[ ,]+/); low[tolower(w[2])] = w[3]; high[tolower(w[2])] = w[4] }; next }
    { gsub(/ /, ""); k = $2
      if (!(k in low) || $6 / low[k] > 1.04 || low[k] / $6 > 1.04 || $10 / high[k] > 1.04 || high[k] / $10 > 1.04) { print k ": sim/cost/collective.c has " low[k] " and " high[k]; bad = 1 } n++ }
    END { exit bad || n != 4 }' sim/cost/collective.c "$work/table"
