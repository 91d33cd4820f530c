#!/bin/sh
# devices_left_out.sh DISTSIM: how far published products and attention of a device lie from the fits
# of its nearest measured relative, scaled by peaks and bandwidth, where the table has rows of the
# relative in the same family and dtype; and that cost_profiles/FITTING.md has these lines.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

families='$NF ~ /^[-+]/ {
    family = $3
    for (i = 4; i < NF - 4; i++) family = family " " $i
    sub(/fwd[+]bwd/, "both ways", family)
    sub(/fwd/, "forward", family)
    sub(/bwd/, "backward", family)
    family = family ", " $2'
tables='tests/data/ops/gemm.csv tests/data/ops/attention.csv'
"$1" profile check $tables | awk "$families"'; print $1 " " family }' >"$work/own"

while read -r device relative; do
    "$1" profile check --as "$relative" $tables >"$work/out" || exit 1
    awk -v device="$device" -v relative="$relative" 'FNR == NR { own[$0] = 1; next }
        '"$families"'
        if ($1 == device && (relative " " family) in own)
            printf "| %s | %s | %s | %s | %s | %s |\n", device, relative, family, $(NF - 4), $(NF - 2), $(NF - 1)
        }' "$work/own" "$work/out"
done >"$work/table" <<'PAIRS'
A100-SXM-80GB H100-SXM-80GB
H100-SXM-80GB H200-SXM
H200-SXM H100-SXM-80GB
B200-SXM GB200-SXM
B300-SXM B200-SXM
GB200-SXM B200-SXM
L40S RTX-PRO-6000-SE
RTX-PRO-6000-SE L40S
MI300X/MI325X MI350X/MI355X
MI350X/MI355X MI300X/MI325X
H100-SXM-80GB A100-SXM-80GB
B200-SXM H100-SXM-80GB
PAIRS
cat "$work/table"
[ -s "$work/table" ] || exit 1
bad=0
while IFS= read -r line; do
    grep -qxF "$line" cost_profiles/FITTING.md || { echo "not in cost_profiles/FITTING.md: $line"; bad=1; }
done <"$work/table"
exit $bad
