#!/bin/sh
# inject.sh DISTSIM INJECT.so [VERB…]: lets the n-th allocation, and the n-th write, of a verb fail, once and from n
# on (inject.c), and demands
#   * of allocations: exit code 3 with one message;
#   * of writes: an exit code other than 0 with a message;
#   * or, where libc or the verb does without, the output of an undisturbed run;
#   * never a signal, never a hang, and of every output file: what was there before, or all of it.
# A table of a sweep grows row by row: it is a beginning of the whole, which --resume goes on with.
# INJECT_POINTS says how many n of each kind are tried, spread over all that there are; default: 8.
distsim=$(realpath "$1") inject=$(realpath "$2")
shift 2
points=${INJECT_POINTS:-8}
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
export TMPDIR="$scratch"
out=$scratch/out # the outputs of a run; names that begin with "rows" are tables of sweeps
failed=0

cat >"$scratch/sweep.dir" <<'END'
dir 1
import "topologies/dgx-a100.dir"
param dp = 2, tp = 4
func @mlp(%x: f32[64@dp, 512]) -> f32[64, 512] {
  weight %w1 : f32[512, 2048@tp]
  weight %w2 : f32[2048@tp, 512]
  %up = matmul(%x, %w1) : f32[64, 2048]
  %act = gelu(%up) : f32[64, 2048]
  %y = matmul(%act, %w2) : f32[64, 512]
  return %y
}
scenario {
  model = @mlp
  on = @dgx_a100
  train { loss = mse, optimizer = adam }
  strategy { dp = dp, tp = tp, zero = 0 }
}
sweep {
  dp in divisors(world)
  tp in divisors(world)
  where dp * tp == world
  zero in [0, 1, 2]
  minimize step_time
}
END

verb() { # VERB: runs it; its outputs go to $out
    case $1 in
    run) set -- run scenarios/tour.dir --overwrite --json="$out/a.json" --trace="$out/a.trace" --csv="$out/a.csv" ;;
    sweep) set -- sweep "$scratch/sweep.dir" -I scenarios -t 2 -q -o "$out/rows.csv" --db "$out/new.db" ;;
    search) set -- search scenarios/mlp-training.dir --cost-model distsim --simulate --overwrite -o "$out/a.dir" ;;
    plan) set -- plan scenarios/models/gpt.dir --on scenarios/topologies/dgx-h100.dir --batch 8 --set layers=2 \
        --set hidden=256 --set heads=4 --set seq=128 --set vocab=4096 --top 1 --evals 6 --method random -t 2 \
        --overwrite --write "$out/a.dir" -o "$out/rows.csv" ;;
    import) set -- import onnx tests/data/onnx/lenet.onnx -I scenarios --set batch=64 --overwrite -o "$out/a.dir" ;;
    import_hf) set -- import hf tests/data/hf/mixtral-8x7b.json -I scenarios --overwrite -o "$out/a.dir" ;;
    import_nccl) set -- import nccl-topo tests/data/topo/dgx-a100.xml --overwrite -o "$out/a.dir" ;;
    import_smi) set -- import nvidia-smi tests/data/topo/dgx-a100.txt --overwrite -o "$out/a.dir" ;;
    esac
    # verify_asan_link_order: nothing is instrumented before main
    timeout 120 env ASAN_OPTIONS="verify_asan_link_order=0:$ASAN_OPTIONS" LD_PRELOAD="$inject" INJECT="$order" "$distsim" "$@" \
        >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
}

# Files that are written at one go replace older ones.
prepare() { # VERB
    rm -rf "$out"
    mkdir "$out"
    case $1 in
    run) for file in a.json a.trace a.csv; do echo old >"$out/$file"; done ;;
    search | plan | import*) echo old >"$out/a.dir" ;;
    esac
}

complain() { # VERB TEXT
    echo "$1, INJECT=$order: $2"
    sed 's/^/    /' "$scratch/stderr"
    failed=1
}

check_files() { # VERB
    for file in "$out"/*; do
        whole=$scratch/whole/$(basename "$file")
        case $(basename "$file") in
        '*' | *.*.?????? | *-journal) continue ;; # none; temporary, and named so
        rows*) [ -e "$whole" ] && head -c "$(wc -c <"$file")" "$whole" | cmp -s - "$file" && continue ;;
        a.*) [ "$(cat "$file")" = old ] && continue ;;
        esac
        cmp -s "$file" "$whole" || complain "$1" "$file is neither what it was nor whole"
    done
}

undisturbed() { # is everything as it should be?
    cmp -s "$scratch/stdout" "$scratch/whole.stdout" || return 1
    for whole in "$scratch/whole"/*; do
        cmp -s "$whole" "$out/$(basename "$whole")" || return 1
    done
}

# The results that a lack of memory or of room may have.
check_exit() { # VERB KIND EXIT
    grep -qE 'Sanitizer|runtime error:' "$scratch/stderr" && complain "$1" "a sanitizer's report"
    case $2,$3 in
    *,124 | *,12[5-9] | *,1[3-9]? | *,2??) complain "$1" "exit code $3" ;;
    malloc,3) [ "$(grep -c '^distsim: out of memory' "$scratch/stderr")" = 1 ] || complain "$1" "not one message" ;;
    *,0) undisturbed || complain "$1" "exit code 0, but not all of the output" ;;
    malloc,*) complain "$1" "exit code $3" ;;
    write,*) grep -q 'error' "$scratch/stderr" || complain "$1" "exit code $3 without a message" ;;
    esac
}

spread() { # N: so many numbers from 1 to N, the first ones close together
    awk -v n="$1" -v points="$points" 'BEGIN {
        for (i = 1; i <= points && i <= n; i++) {
            at = n <= points ? i : i <= 3 ? i : 3 + int((n - 3) * (i - 3) / (points - 3))
            print at
        }
    }'
}

try() { # VERB KIND N
    for n in $(spread "$3"); do
        for order in "$2:$n" "$2:$n+"; do
            prepare "$1"
            verb "$1"
            check_exit "$1" "$2" $?
            check_files "$1"
            tried=$((tried + 1))
        done
    done
}

[ $# -gt 0 ] || set -- run sweep search plan import import_hf import_nccl import_smi
for name; do
    tried=0 order=count
    prepare "$name"
    rm -rf "$scratch/whole"
    verb "$name" || complain "$name" "exit code $?"
    mv "$out" "$scratch/whole"
    cp "$scratch/stdout" "$scratch/whole.stdout"
    mallocs=$(sed -n 's/^malloc //p' "$scratch/stderr") writes=$(sed -n 's/^write //p' "$scratch/stderr")
    try "$name" malloc "$mallocs"
    try "$name" write "$writes"
    echo "$name: $tried points in $mallocs allocations and $writes writes"
done
exit $failed
