#!/bin/sh
# slurm.sh DISTSIM: what tools/sweep.slurm runs, with Slurm's variables set by hand: an array of three shards, one of
# which is interrupted and run again, and the merge. The same bytes as one sweep.
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
file=scenarios/distir-grid.dir
export DISTSIM="$1" SLURM_CPUS_PER_TASK=2
"$DISTSIM" sweep "$file" -q -o "$scratch/one.csv" || exit 1
job() {
    SLURM_ARRAY_TASK_ID=$1 SLURM_ARRAY_TASK_COUNT=3 bash tools/sweep.slurm "$file" "$scratch/out.csv"
}
job 1 && job 2 && job 3 || exit 1
head -c 5000 "$scratch/out.2-of-3.csv" >"$scratch/cut" && cp "$scratch/cut" "$scratch/out.2-of-3.csv"
job 2 && bash tools/sweep.slurm --merge 3 "$scratch/out.csv" && cmp "$scratch/one.csv" "$scratch/out.csv"
