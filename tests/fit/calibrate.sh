#!/bin/sh
# calibrate.sh DISTSIM FIT_PROFILES: rows whose times a profile predicts, fitted from constants that
# are a quarter too large or too small, lead back to the profile.
cd "$(dirname "$0")/../.." || exit 2
distsim=$1 fit=$2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
table=tests/data/e2e/e2e_vtrain_single.csv profile=A100-vTrain-node

# Every 103rd row, with the predicted times for measured ones, all of them calib.
awk '/^#/ || !head++ || ++n % 103 == 0' "$table" >"$work/some.csv"
"$distsim" validate -I scenarios "$work/some.csv" -o "$work/rows.csv" >/dev/null || exit 1
awk -F, -v OFS=, '
    FNR == NR { if (FNR == 1) for (i = 1; i <= NF; i++) at[$i] = i; else s[$(at["line"])] = $(at["predicted_s"]); next }
    /^#/ { print; next }
    !split_at { for (i = 1; i <= NF; i++) { if ($i == "split") split_at = i; if ($i == "iter_time_s") time_at = i }; print; next }
    { $split_at = "calib"; $time_at = s[FNR]; print }' "$work/rows.csv" "$work/some.csv" >"$work/exact.csv"

"$fit" rows "cost_profiles/$profile" "$work/exact.csv" --away 1.25 --iterations 5 2>/dev/null >"$work/out" || {
    cat "$work/out"
    exit 1
}
cat "$work/out"
# gemm, softmax and floor are in every row; times are within 0.3 % of the exact ones on the average
awk '
    /^(gemm|softmax|floor) / { d = $4; sub(/^[+]/, "", d); if (d > 5 || d < -5) { print "moved: " $0; bad = 1 }; n++ }
    /^calib/ { mean = $4 }
    END { if (n != 3 || mean > 0.3) { print "mean " mean " %, " n " constants"; bad = 1 } exit bad }' "$work/out"
