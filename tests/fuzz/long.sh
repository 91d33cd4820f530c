#!/bin/bash
# Fuzzes every target for a time and a number of runs, and prints what was run and found.
#
#     tests/fuzz/long.sh BUILD SECONDS [TARGET...]
#
# BUILD is the folder of preset fuzz with its fuzz_* programs built, TARGET a name like parse.
# Environment: RUNS, runs of each target at least (default 200000), RETRIES of a target that found
# something (20), JOBS at a time (1), OUT, the folder of corpora, logs and findings
# (BUILD/fuzz-long). Figures of earlier calls with the same OUT are added up. Exit code 1: there are
# findings, in OUT/NAME.found.
set -u
build=$1 seconds=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.." || exit 2
case $build in /*) ;; *) build=$PWD/$build ;; esac
out=${OUT:-$build/fuzz-long}
runs=${RUNS:-200000}
if [ $# -eq 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        name=$(basename "$source" .c)
        set -- "$@" "${name#fuzz_}"
    done
fi
mkdir -p "$out"
# Short stacks and few freed blocks kept: half of the time. A finding is to be run again without.
export ASAN_OPTIONS=malloc_context_size=2:quarantine_size_mb=4
export UBSAN_OPTIONS=print_stacktrace=1

count() { # NAME: files of findings; a slow unit is none on a busy machine, a timeout is one
    find "$out/$1.found" -type f ! -name 'slow-unit-*' 2>/dev/null | wc -l
}

most() { # NAME: bytes of an input; edits need few
    case $1 in
    parse | run | import | topo | profile) echo 4096 ;;
    *) echo 128 ;;
    esac
}

# One process; its runs and seconds go to NAME.sums.
fuzz() { # NAME SECONDS
    local log=$out/$1.log begin=$SECONDS done
    nice -n 10 "$build/tests/fuzz_$1" -max_total_time="$2" -timeout=30 -rss_limit_mb=4000 \
        -max_len="$(most "$1")" -len_control=0 -dict=tests/fuzz/numbers.dict -print_final_stats=1 -artifact_prefix="$out/$1.found/" "$out/$1" \
        "tests/fuzz/corpus/$1" >"$log" 2>&1
    done=$(sed -n 's/^stat::number_of_executed_units: //p' "$log")
    echo "${done:-0} $((SECONDS - begin))" >>"$out/$1.sums"
    sed -n 's/^\(cmd_[a-z]*\): \([0-9]*\) of \([0-9]*\) accepted$/\1 \2 \3/p' "$log" >>"$out/$1.calls"
}

sum() { # NAME: runs and seconds so far
    [ -f "$out/$1.sums" ] || echo 0 0 >"$out/$1.sums"
    awk '{ runs += $1; s += $2 } END { print runs, s }' "$out/$1.sums"
}

target() { # NAME
    local did took goes=0 retries=${RETRIES:-20}
    mkdir -p "$out/$1" "$out/$1.found"
    touch "$out/$1.calls"
    export TMPDIR
    TMPDIR=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
    while read -r did took < <(sum "$1") && [ "$(count "$1")" -le "$retries" ]; do
        if [ "$took" -lt "$seconds" ]; then
            fuzz "$1" $((seconds - took))
        elif [ "$did" -lt "$runs" ]; then
            fuzz "$1" 60
        else
            break
        fi
        goes=$((goes + 1))
        [ $goes -gt 1000 ] && break
    done
    rm -rf "$TMPDIR"
}

for name; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
    target "$name" &
done
wait

found=0
printf '| target | runs | seconds | runs/s | findings |\n|---|---:|---:|---:|---:|\n'
for name; do
    read -r did took < <(sum "$name")
    n=$(count "$name")
    found=$((found + n))
    printf '| %s | %d | %d | %d | %d |\n' "$name" "$did" "$took" $((did / (took > 0 ? took : 1))) "$n"
done
echo
for name; do
    awk -v name="$name" '{ good[$1] += $2; all[$1] += $3 }
        END { for (v in all) printf "%s: %s accepted %d of %d inputs\n", name, v, good[v], all[v] }' \
        "$out/$name.calls"
done
[ $found -eq 0 ]
