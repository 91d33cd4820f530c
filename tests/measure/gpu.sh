#!/bin/sh
# gpu.sh MEASURE_GPU DISTSIM: what measure-gpu would write is a profile. Every row of the dry run gets a time of
# 1 us; the database builds from it, and knows each op. Nothing is measured.
program=$1
distsim=$2
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/gpu"
"$program" --dry-run 2>"$scratch/summary" |
    awk -F, -v OFS=, 'NR > 1 { if ($16 != "") { print "a time in a dry run"; exit 1 } $16 = 1 } { print }' \
        >"$scratch/gpu/ops.csv" || exit 1
cp -r cost_profiles/schema.sql cost_profiles/catalogue "$scratch"
printf 'name,device,issue_us,software,source\ngpu,H100,0,dry run,measured-here\n' >"$scratch/gpu/profile.csv"
printf 'key,title,place,revision,licence\nmeasured-here,A dry run,here,,facts\n' >"$scratch/gpu/sources.csv"
"$distsim" profile build "$scratch" -o "$scratch/p.db" || exit 1
"$distsim" profile show gpu --database "$scratch/p.db" >"$scratch/shown" || exit 1
for op in gemm attention add relu gelu silu_mul softmax layer_norm rms_norm sgd; do
    grep -q "^$op .* f16 " "$scratch/shown" || { echo "no f16 rows of $op"; cat "$scratch/shown"; exit 1; }
done
# 12 products a layer list, 4 degrees, 16 tokens and 4 weight gradients each, and 5 of heads: 965 in f16.
grep -q "^gemm  *f16  *965 " "$scratch/shown" || { echo "not 965 products in f16"; cat "$scratch/shown"; exit 1; }
grep -q '^1722 operations' "$scratch/summary" || { cat "$scratch/summary"; exit 1; }
