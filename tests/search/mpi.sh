#!/bin/sh
# mpi.sh DISTSIM MPIRUN: sweeps by MPI ranks. Two ranks (with DISTSIM_TEST_ALL=1: 1, 2 and 4, and more methods) with 1 and 2 threads write the same bytes as one
# process, methods that learn from results too; what is wrong is told once, with the exit code that one process has; a rank that is killed ends the
# job with exit code 3, and the file can be resumed.
distsim=$1 mpirun=$2
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
export OMPI_MCA_rmaps_base_oversubscribe=1 # --oversubscribe: more ranks than cores
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
file=scenarios/distir-grid.dir
failed=0
many=2 methods="bound anneal"
[ "${DISTSIM_TEST_ALL:-}" ] && many="1 2 4" methods="bound beam anneal mcmc"

fail() {
    echo "$*"
    failed=1
}

"$distsim" sweep "$file" -q -t 1 -o "$scratch/one.csv" || exit 1
"$distsim" sweep "$file" -q -t 1 --method random --evals 40 -o "$scratch/random.csv" || exit 1
for ranks in $many; do
    for threads in 1 2; do
        out=$scratch/$ranks-$threads.csv
        "$mpirun" -n "$ranks" "$distsim" sweep "$file" -q -t "$threads" -o "$out" || fail "$ranks ranks: exit code $?"
        cmp "$scratch/one.csv" "$out" || fail "$ranks ranks with $threads threads: other rows"
    done
done
"$mpirun" -n 3 "$distsim" sweep "$file" -q --method random --evals 40 -o "$scratch/random-3.csv"
cmp "$scratch/random.csv" "$scratch/random-3.csv" || fail "a random sample: other rows"

# What is asked for next depends on results, and so on the order in which they are told.
sed 's/layers = 16, width = 8192/layers = 4, width = 1024/; s/gpu\[16\]/gpu[8]/; s/0\.\.16/0..8/; s/128)/8)/' "$file" >"$scratch/small.dir"
for method in $methods; do
    few="$scratch/small.dir -I scenarios -q --method $method --evals 40 --seed 7"
    # shellcheck disable=SC2086 # several words
    "$distsim" sweep $few -t 1 -o "$scratch/$method.csv" || fail "$method: exit code $?"
    for ranks in $many; do
        # shellcheck disable=SC2086
        "$mpirun" -n "$ranks" "$distsim" sweep $few -o "$scratch/$method-$ranks.csv" || fail "$method, $ranks ranks: exit code $?"
        cmp "$scratch/$method.csv" "$scratch/$method-$ranks.csv" || fail "$method, $ranks ranks: other rows"
    done
done

# A job array under mpirun is not a job of ranks.
"$mpirun" -n 2 sh -c '"$0" sweep "$1" -q -t 1 --shard $((OMPI_COMM_WORLD_RANK + 1))/2 -o "$2/shard$OMPI_COMM_WORLD_RANK.csv"' \
    "$distsim" "$file" "$scratch" || fail "shards: exit code $?"
"$distsim" merge -o "$scratch/merged.csv" "$scratch/shard0.csv" "$scratch/shard1.csv" 2>"$scratch/log" || fail "merge"
cmp "$scratch/one.csv" "$scratch/merged.csv" || fail "shards: other rows"

"$mpirun" -n 2 "$distsim" sweep "$file" -q -o "$scratch/one.csv" 2>"$scratch/log"
[ $? = 2 ] || fail "a file that exists: no exit code 2"
[ "$(grep -c 'exists: --resume goes on' "$scratch/log")" = 1 ] || fail "a file that exists: not told once"
"$mpirun" -n 2 "$distsim" sweep "$scratch/nothing.dir" -q 2>"$scratch/log"
[ $? = 1 ] || fail "no file: no exit code 1"
[ "$(grep -c 'cannot open' "$scratch/log")" = 1 ] || fail "no file: not told once"

# The process of rank R that works: its parent, which watches it, has the same name.
rank_of() {
    for process in $(grep -lsazxF -- "$2" /proc/[0-9]*/cmdline | xargs -r -n 1 dirname); do
        grep -qsazxF "OMPI_COMM_WORLD_RANK=$1" "$process/environ" || continue
        parent=$(awk '/^PPid:/ { print $2 }' "$process/status")
        [ "$(cat "/proc/$parent/comm")" = distsim ] && echo "${process#/proc/}"
    done 2>/dev/null
}

# Long enough to be killed in: eight times as many candidates.
sed 's/^  minimize/  zero in 0..2\n  optimizer in [sgd, adam]\n  bucket_size in [5 MB, 25 MB]\n  minimize/' "$file" >"$scratch/long.dir"
long="$scratch/long.dir -I scenarios -q -t 1"
# shellcheck disable=SC2086 # several words
"$distsim" sweep $long -o "$scratch/long.csv"
for rank in 1 0; do
    out=$scratch/killed$rank.csv
    # shellcheck disable=SC2086
    "$mpirun" -n 2 "$distsim" sweep $long -o "$out" 2>"$scratch/log" &
    job=$!
    pid=
    while kill -0 "$job" 2>/dev/null && [ -z "$pid" ]; do pid=$(rank_of "$rank" "$out"); done
    while kill -0 "$job" 2>/dev/null && ! [ "$(wc -l 2>/dev/null <"$out")" -ge 20 ] 2>/dev/null; do sleep 0.02; done
    kill -9 "$pid" || fail "rank $rank was not found"
    wait "$job"
    code=$?
    [ "$code" = 3 ] || fail "rank $rank killed: exit code $code, not 3"
    grep -q 'was killed by signal 9' "$scratch/log" || fail "rank $rank killed: not told"
    left=$(wc -l <"$out")
    whole=$(wc -l <"$scratch/long.csv")
    [ "$left" -lt "$whole" ] || fail "rank $rank was killed too late"
    # shellcheck disable=SC2086
    "$mpirun" -n 2 "$distsim" sweep $long --resume -o "$out" || fail "rank $rank killed: resume fails"
    cmp "$scratch/long.csv" "$out" || fail "rank $rank killed after $left of $whole lines: other rows after --resume"
done
exit $failed
