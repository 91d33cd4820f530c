#!/bin/sh
# statistics.sh DISTSIM: what `validate --json` says of a set, computed again from the rows of --out.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
check() { # DISTSIM TABLE N: of N calib rows
"$1" validate --json -I scenarios "tests/data/e2e/$2" --overwrite -o "$work/rows.csv" >"$work/said.json" || exit 1
awk -F, -v want="$3" '
    function abs(x) { return x < 0 ? -x : x }
    function sort(a, n,   i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j - 1]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    }
    function quantile(a, n, q,   at, i) {
        at = 1 + q * (n - 1); i = int(at)
        return i >= n ? a[n] : a[i] + (at - i) * (a[i + 1] - a[i])
    }
    function rank(x, n, out,   i, j, b, e) {
        for (i = 1; i <= n; i++) { b = e = 0; for (j = 1; j <= n; j++) { b += x[j] < x[i]; e += x[j] == x[i] } out[i] = b + (e + 1) / 2 }
    }
    function expect(name, value,   said) {
        said = json[name]
        if (said == "" || abs(said - value) > 1e-6 * (1 + abs(value))) { print name ": said " said ", from the rows " value; bad = 1 }
    }
    FILENAME ~ /json$/ {
        line = $0; gsub(/[",]/, "", line); split(line, part, /: */); gsub(/^ */, "", part[1])
        if (part[1] == "split") split_ = part[2]
        if (split_ == "calib") json[part[1]] = part[2]
        next
    }
    FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["split"] == "calib" && $at["predicted_s"] != "" {
        n++; was[n] = $at["measured_s"] + 0; is[n] = $at["predicted_s"] + 0
        if ($at["high_s"] != "") { known++; within += was[n] >= $at["low_s"] + 0 && was[n] <= $at["high_s"] + 0; half[known] = 50 * ($at["high_s"] - $at["low_s"]) / is[n] }
        e = 100 * (is[n] / was[n] - 1); sum += abs(e); bias += e; err[n] = abs(e)
    }
    END {
        sort(err, n)
        expect("n", n); expect("mape", sum / n); expect("bias", bias / n); expect("max", err[n])
        expect("median", quantile(err, n, 0.5)); expect("p90", quantile(err, n, 0.9))
        rank(was, n, a); rank(is, n, b)
        for (i = 1; i <= n; i++) { ma += a[i] / n; mb += b[i] / n }
        for (i = 1; i <= n; i++) { ab += (a[i] - ma) * (b[i] - mb); aa += (a[i] - ma) ^ 2; bb += (b[i] - mb) ^ 2 }
        expect("spearman", ab / sqrt(aa * bb))
        if (known) { sort(half, known); expect("interval_coverage", 100 * within / known); expect("interval_half_width", quantile(half, known, 0.5)) }
        exit bad || n != want
    }' "$work/said.json" "$work/rows.csv" || exit 1
}
check "$1" e2e_distir_mlp.csv 45
check "$1" e2e_megatron_2020_v100_a100.csv 9
