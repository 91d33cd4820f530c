#!/bin/sh
# intervals.sh DISTSIM FIT_PROFILES [--write|--check]: where nine in ten measured steps lie, of profiles that
# were fitted to steps (ratio_p05, ratio_p95) and of generic profiles (catalogue/intervals.csv), from the calib
# rows of all tables. Rows of the large tables are thinned where generic profiles predict them: such steps are
# simulated whole. Minutes; cost_profiles/FITTING.md has the method. ROWS=FOLDER keeps the rows, and takes those
# that are there.
cd "$(dirname "$0")/../.." || exit 2
distsim=$1 fit=$2 mode=$3
rows=$ROWS
[ -n "$rows" ] || { rows=$(mktemp -d) && trap 'rm -rf "$rows"' EXIT; } || exit 2
mkdir -p "$rows" || exit 2
for table in tests/data/e2e/e2e_*.csv; do
    name=$(basename "$table" .csv) every=1
    case $name in
    e2e_zero_shot | e2e_distir_mlp | e2e_nemo_launcher_a100) continue ;; # no row of the split calib, or none with shares
    e2e_vtrain_single) every=10 ;;
    e2e_bigscience_a100) every=6 ;;
    e2e_megatron_bridge | e2e_mpt_fsdp | e2e_vtrain_multi | e2e_bigscience_v100 | e2e_alpa_v100) every=3 ;;
    esac
    [ -s "$rows/own_$name.csv" ] ||
        "$distsim" validate -I scenarios --split calib "$table" -o "$rows/own_$name.csv" >/dev/null || exit 1
    [ -s "$rows/zero_$name.csv" ] ||
        "$distsim" validate -I scenarios --split calib --zero-shot --without step --every $every "$table" \
            -o "$rows/zero_$name.csv" >/dev/null || exit 1
done
# shellcheck disable=SC2086
"$fit" intervals cost_profiles "$rows"/own_*.csv "$rows"/zero_*.csv $mode
