#!/bin/sh
# How many candidates a second: DistIR's grid, Calculon's space for Turing-NLG 530B, and random hard
# ones of GPT-3 175B on 4,096 GPUs, by the clock, start-up included. The best and the median of a few
# runs; what the READMEs of search and search/compose say is from a machine with nothing else to do.
#
#   tools/bench/sweeps.sh BUILD_DIR [runs (5)] [threads (2)] [hard candidates (300)]
set -eu
build=${1:?usage: sweeps.sh BUILD_DIR [runs] [threads] [hard candidates]}
runs=${2:-5} threads=${3:-2} hard=${4:-300}
source=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ -x "$build/distsim" ] || { echo "there is no $build/distsim" >&2; exit 2; }
build=$(cd "$build" && pwd)
export DISTSIM_PROFILES="${DISTSIM_PROFILES:-$build/profiles.db}"

# Rates, one a line → the best and the median.
summary() {
    sort -g "$1" | awk -v what="$2" '{ rate[NR] = $1 } END {
        printf "%-42s best %10.1f /s   median %10.1f /s   (%d runs)\n", what, rate[NR], rate[int((NR + 1) / 2)], NR }'
}

now() { date +%s.%N; }

sweep() { # scenario, what
    : > "$scratch/rates"
    for i in $(seq "$runs"); do
        start=$(now)
        "$build/distsim" sweep "$source/$1" -t "$threads" -o "$scratch/rows.csv" > /dev/null 2>&1
        end=$(now)
        rows=$(($(wc -l < "$scratch/rows.csv") - 1))
        rm -f "$scratch/rows.csv"
        awk -v n="$rows" -v a="$start" -v b="$end" 'BEGIN { print n / (b - a) }' >> "$scratch/rates"
    done
    summary "$scratch/rates" "$2 ($rows candidates)"
}

sweep scenarios/distir-grid.dir "DistIR's grid"
sweep scenarios/sweeps/turing-530b.dir "Turing-NLG 530B on 5,128"
if [ -x "$build/bench_candidates" ]; then
    : > "$scratch/rates"
    for i in $(seq "$runs"); do
        "$build/bench_candidates" "$hard" "$threads" > "$scratch/out"
        sed -n 's/^\([0-9.]*\) a second on .*/\1/p' "$scratch/out" >> "$scratch/rates"
    done
    summary "$scratch/rates" "GPT-3 175B on 4,096, hard ($hard)"
    tail -n 2 "$scratch/out" | head -n 1
else
    echo "hard candidates: build the target bench_candidates first"
fi
