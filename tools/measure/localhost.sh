#!/bin/sh
# Measures this machine and checks the simulator against it: tools/measure/localhost.sh [BUILD [RUNS [ROUNDS]]]
#
# A run calibrates BLAS and MPI and trains the MLP in 12 configurations, in turns, by two ranks on a
# core each (measure-cpu); then distsim fits a profile to the calibration and predicts each
# configuration from it. Nothing of the measured steps goes into the prediction. Several runs say
# how well the machine repeats itself. BUILD defaults to build, RUNS to 3, ROUNDS to 12 (36 steps of
# each configuration a run). What was measured stays in BUILD/measure.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
runs=${2:-3}
rounds=${3:-12}
out=$build/measure
for program in measure-cpu distsim; do
    [ -x "$build/$program" ] || {
        echo "localhost.sh: $build/$program is not built (measure-cpu needs MPI and a BLAS)" >&2
        exit 1
    }
done

# One thread a rank, whatever the BLAS; no rank may yield its core.
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 BLIS_NUM_THREADS=1 MKL_NUM_THREADS=1
export OMP_NUM_THREADS OPENBLAS_NUM_THREADS BLIS_NUM_THREADS MKL_NUM_THREADS
if [ "$(id -u)" = 0 ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi

# Before other programs, where the user may: what they take of a core is no time of the machine.
first=
chrt -f 1 true 2>/dev/null && first="chrt -f 1"

# One run: RUN/localhost is the profile, RUN/profiles.db the database, RUN/rows.csv a line a
# configuration: layers,width,batch,measured_us,q25_us,q75_us,predicted_us.
run() {
    rm -rf "$1"
    mkdir -p "$1/localhost"
    cp -r cost_profiles/schema.sql cost_profiles/catalogue "$1"
    # shellcheck disable=SC2086 # no word or three
    mpirun -n 2 --bind-to core $first "$build/measure-cpu" "$1/localhost" "$rounds"
    mv "$1/localhost/steps.csv" "$1"
    "$build/distsim" profile fit "$1/localhost" --write >"$1/fit.txt"
    "$build/distsim" profile build "$1" -o "$1/profiles.db"
    tail -n +2 "$1/steps.csv" | while IFS=, read -r layers width batch median q25 q75 n; do
        ps=$("$build/distsim" run scenarios/localhost-mlp.dir --database "$1/profiles.db" --json \
            --set m.layers="$layers" --set m.width="$width" --set m.batch="$batch" |
            sed -n 's/.*"step_time_ps": *\([0-9]*\).*/\1/p')
        echo "$layers,$width,$batch,$median,$q25,$q75,$(echo "$ps" | sed 's/......$/.&/')"
    done >"$1/rows.csv"
}

i=1
while [ "$i" -le "$runs" ]; do
    run "$out/$i"
    i=$((i + 1))
done

# Over the runs: the median of the measured medians and of the predictions, the error of that, and
# how far the runs lie apart, (most - least)/median of the measured medians.
cat "$out"/[0-9]*/rows.csv | awk -F, -v runs="$runs" '
    function middle(list, n,   i, j, t) { # of list[1..n], which it sorts
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j] < list[j - 1]; j--) {
                t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
            }
        return (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2
    }
    {
        key = $1 "," $2 "," $3
        if (!(key in count)) order[++n_keys] = key
        i = ++count[key]
        measured[key, i] = $4 + 0; predicted[key, i] = $7 + 0; within[key, i] = ($6 - $5) / $4
    }
    END {
        print "layers  width  batch   measured ms  predicted ms   error   runs apart  steps apart"
        for (k = 1; k <= n_keys; k++) {
            key = order[k]
            for (i = 1; i <= count[key]; i++) {
                m[i] = measured[key, i]; p[i] = predicted[key, i]; w[i] = within[key, i]
            }
            middle_m = middle(m, count[key]); middle_p = middle(p, count[key])
            apart = (m[count[key]] - m[1]) / middle_m
            e = middle_p / middle_m - 1
            split(key, part, ",")
            printf "%6d %6d %6d %13.3f %13.3f %+6.1f %% %9.1f %% %10.1f %%\n", part[1], part[2],
                part[3], middle_m / 1e3, middle_p / 1e3, 100 * e, 100 * apart,
                100 * middle(w, count[key])
            sum += e < 0 ? -e : e; bias += e; spread += apart
        }
        printf "mean |error| %.1f %%, bias %+.1f %%; runs apart on the average %.1f %% (%d runs)\n",
            100 * sum / n_keys, 100 * bias / n_keys, 100 * spread / n_keys, runs
    }'
