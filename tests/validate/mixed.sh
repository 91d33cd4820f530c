#!/bin/sh
# mixed.sh DISTSIM: tables of mixed clusters. Every source_id is a set; predictions beside those of the sources
# (column own_pred_s); rows that cannot be read are refused, each with a reason, and no row ends the run.
cd "$(dirname "$0")/../.." || exit 2
distsim=$1
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
bad=0
fail() { echo "$*"; bad=1; }

# A line a set: set, rows, mean and largest error in per cent, Spearman, the same three of the source, median error.
compare() { # TABLE
    "$distsim" validate -I scenarios "$1" --overwrite -o "$work/rows.csv" >"$work/said" || exit 1
    awk '
        function cells(line, c,   n, i, quoted, cell, ch) {
            n = 1; cell = ""; quoted = 0
            for (i = 1; i <= length(line); i++) {
                ch = substr(line, i, 1)
                if (ch == "\"") quoted = !quoted
                else if (ch == "," && !quoted) { c[n++] = cell; cell = "" }
                else cell = cell ch
            }
            c[n] = cell
            return n
        }
        function abs(x) { return x < 0 ? -x : x }
        function rank(set, what, i,   k, b, e) {
            b = e = 0
            for (k = 1; k <= n[set]; k++) { b += x[set, what, k] < x[set, what, i]; e += x[set, what, k] == x[set, what, i] }
            return b + (e + 1) / 2
        }
        function spearman(set, what,   k, m, a, b, sab, sa, sb) {
            m = (n[set] + 1) / 2
            for (k = 1; k <= n[set]; k++) { a = rank(set, what, k) - m; b = rank(set, 0, k) - m; sab += a * b; sa += a * a; sb += b * b }
            return sa * sb > 0 ? sab / sqrt(sa * sb) : 1
        }
        function median(set,   k, j, t, e) {
            for (k = 1; k <= n[set]; k++) e[k] = 100 * abs(x[set, 1, k] / x[set, 0, k] - 1)
            for (k = 2; k <= n[set]; k++) for (j = k; j > 1 && e[j] < e[j - 1]; j--) { t = e[j]; e[j] = e[j - 1]; e[j - 1] = t }
            return (e[int((n[set] + 1) / 2)] + e[int(n[set] / 2) + 1]) / 2
        }
        FNR == 1 { file++; at_head = 1 }
        /^#/ { next }
        at_head { k = cells($0, c); delete at; for (i = 1; i <= k; i++) at[c[i]] = i; at_head = 0; next }
        file == 1 { cells($0, c); own[FNR] = c[at["own_pred_s"]] + 0; next }
        {
            cells($0, c); set = c[at["set"]]; if (c[at["predicted_s"]] == "") next
            k = ++n[set]; line = c[at["line"]]
            x[set, 0, k] = c[at["measured_s"]] + 0; x[set, 1, k] = c[at["predicted_s"]] + 0; x[set, 2, k] = own[line]
        }
        END {
            for (set in n) {
                out = set " " n[set]
                for (w = 1; w < 3; w++) {
                    sum = most = 0
                    for (k = 1; k <= n[set]; k++) { e = 100 * abs(x[set, w, k] / x[set, 0, k] - 1); sum += e; if (e > most) most = e }
                    out = out sprintf(" %.2f %.2f %.3f", sum / n[set], most, spearman(set, w))
                }
                print out sprintf(" %.2f", median(set))
            }
        }' "$1" "$work/rows.csv" | sort
}

sailor=tests/data/e2e/e2e_sailor.csv
compare $sailor >"$work/sailor"
cat "$work/sailor"
[ "$(cut -d' ' -f1,2 "$work/sailor" | tr '\n' ' ')" = \
    "sailor_gh_neo 6 sailor_gh_opt 10 sailor_gh_opt_old 10 sailor_mit1 5 sailor_mit2 5 " ] || fail "sets: $(cat "$work/sailor")"
# The issue's bounds: mixed cards within 25 %, mean 12 %; GH200 mean 8 %; means and ranks no worse than those of the
# source's own simulator.
awk '/_mit/ && ($3 > 12 || $4 > 25) { bad = 1 } /_gh/ && $3 > 8 { bad = 1 }
     $3 > $6 || $5 < $8 { bad = 1 } END { exit bad }' "$work/sailor" || fail "errors of $sailor"

amp=tests/data/e2e/e2e_amp.csv
compare $amp >"$work/amp"
cat "$work/amp"
# The issue's bounds: rank correlation 0.85, 0.93 and 0.85, median 15 %; in the mean no worse than the source's costs.
awk '{ rank = /^amp_homo/ ? 0.93 : 0.85; if ($5 < rank || $3 > $6 || $9 > 15) bad = 1; n += $2 }
     END { exit bad || n != 64 }' "$work/amp" || fail "errors of $amp"

# ---- MFU alone ----
hexi=tests/data/e2e/e2e_hexiscale.csv
some=$work/hexi.csv
if [ "$DISTSIM_TEST_ALL" ]; then cp $hexi "$some"; else sed 4,7d $hexi >"$some"; fi
"$distsim" validate -I scenarios "$some" --overwrite -o "$work/mfu.csv" >"$work/said" || fail "MFU rows end the run"
cat "$work/said"
# Calib rows: MFU within 15 %. The measured step is 72 L B S H^2 (1 + S/6H + V/16LH) over the peaks: Llama 2 7B, 96
# sequences of 4,096, 32,000 words, on 16 GPUs of 312 TFLOP/s at 38.58 %: 9.328 s.
awk -F, '$2 == "calib" { ratio = $NF / $(NF - 1); if (ratio < 0.85 || ratio > 1.15) bad = 1; n++ }
         $3 == 3 && ($20 < 9.327 || $20 > 9.329) { bad = 1 } $25 != "" && NR > 1 { bad = 1 }
         END { exit bad || !n }' "$work/mfu.csv" || fail "MFU: $(cat "$work/mfu.csv")"
sed 's/,2x(8xA100-PCIe),/,2x(8xMI300),/; s/Llama-2-13B/BERT/' $hexi | sed '5,7d' >"$some"
sed -n 4p $hexi | sed 's/,A100-PCIe,16,/,A100-PCIe,17,/' >>"$some"
sed -n 4p $hexi | sed 's/,2x(8xA100-PCIe),/,2x8xA100,/' >>"$some"
sed -n 3p $hexi >"$work/one"
for change in 's/,A100-PCIe,16,/,Foo,16,/' 's/,16,8,/,16,3,/' 's/,TCP (rate not stated),/,0 Gb\/s,/' 's/,32,4096,32,/,32,7,32,/' \
    's/,32,4096,32,,/,32,4096,32,5,/' 's/,38.58,/,1e-300,/'; do
    sed "$change" "$work/one" >>"$some"
done
sed -n '/^amp_het,/{s/,1\.47,/,1e-300,/p;s/,1e-300,/,1.47,/;s/^amp_het//p;q}' $amp >>"$some"
"$distsim" validate -I scenarios "$some" >"$work/said" || fail "odd MFU rows end the run"
for reason in "gpu = 'Foo' does not name the A100-PCIe of cluster" "gpus_per_node = 3, but cluster has nodes of 8" \
    "inter_link = '0 Gb/s': MFU alone takes no rates" "hidden 7 is not divisible by heads 32" "heads 32 is not divisible by kv_heads 5" \
    "mfu_pct = '1e-300' is out of range" "iter_time_s = '1e-300' is out of range" "source_id = '': no such source" "the peak of 'MI300' is not known here" "of model 'BERT' no dims are known" "has 16 GPUs, not 17" "is no list like"; do
    grep -q "$reason" "$work/said" || fail "no MFU row is refused with: $reason: $(cat "$work/said")"
done

# ---- rows that are no runs ----
head=$(grep -n '^source_id,' $sailor | cut -d: -f1)
row=$(grep ',sailor_mit2_N4_D1,' $sailor)
{
    sed -n "${head}p" $sailor
    printf '%s\n' "$row" | sed 's/\(cf2c8[0-9a-f]*\),sailor_mit2,/\1,some_place,/'
    printf '%s\n' "$row" | sed 's/RTX-3090\*8 ;/RTX-9090*8 ;/'
    printf '%s\n' "$row" | sed 's/RTX-3090\*8 ;/RTX-3090*7 ;/'
    printf '%s\n' "$row" | sed 's/RTX-3090\*8 ;/RTX-3090*4+Titan-RTX*4 ;/'
    printf '%s\n' "$row" | sed 's/,5 7 7 7,/,5 7 7 8,/'
    printf '%s\n' "$row" | sed 's/,5 7 7 7,/,,/'
    printf '%s\n' "$row" | sed 's/,128,ok,/,128,failed,/'
    printf '%s\n' "$row" | sed 's/,mem_copied/,suspect_copy/'
    printf '%s\n' "$row" | sed 's/,1,8,4,,/,1,3,4,,/'
    printf '%s\n' "$row" | sed 's/\(cf2c8[0-9a-f]*\),sailor_mit2,/\1,,/'
    printf '%s\n' "$row" | sed 's/,RTX-2080+RTX-3090+Titan-RTX,32,8,/,H100,32,8,/'
    printf '%s\n' "$row" | sed 's/,32,8,measured/,32,,measured/'
    printf '%s\n' "$row" | sed 's/^sailor_mit2,/sailor|mit2,/'
    printf '%s\n' "$row" | sed 's/\*8 ;/ * 8;/g; s/,5 7 7 7,/,"5,7,7,7",/'
} >"$work/odd.csv"
"$distsim" validate -I scenarios "$work/odd.csv" >"$work/said" || fail "odd rows end the run"
while read -r reason; do
    grep -q "$reason" "$work/said" || fail "no row is refused with: $reason"
done <<'EOF'
cluster_id = 'some_place': no machine is known here
no device 'RTX-9090' of cluster sailor_mit2
stage_devices: 7 devices in the first 1 stages, not 8
stage_devices: node 0 has a RTX-3090 and a Titan-RTX
are not 24 layers on 4 stages
not stated: stage_layers
the trial's outcome is failed
suspected copy
are not 32 GPUs
not stated: cluster_id
gpu = 'H100' does not name the RTX-3090
not stated: gpus_per_node
EOF
grep -q '^| sailor_mit2 | calib | 1 | 12 |' "$work/said" || fail "not one row of thirteen: $(cat "$work/said")"
grep -qF '| sailor\|mit2 | calib | 1 | 0 | ' "$work/said" || fail "a bar in a name: $(cat "$work/said")"

# A column that is missing: every row says so.
sed '1s/stage_devices/another/' "$work/odd.csv" >"$work/narrow.csv"
"$distsim" validate -I scenarios "$work/narrow.csv" >"$work/said" || fail "a missing column ends the run"
grep -q '| 0 | 12 |' "$work/said" || fail "a missing column: $(cat "$work/said")"
exit $bad
