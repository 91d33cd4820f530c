#!/bin/sh
# The cases of the resharding microbenchmark of arXiv 2211.05322 (alpa-projects/alpa,
# benchmark/alpa/resharding/suite.py), in all ways, in ms: tools/resharding.sh [DISTSIM], from the
# repository's root. The scenario scenarios/resharding.dir says what its parameters are.
set -eu
distsim=${1:-build/distsim}

# Times of the six reshards of the scenario, in its order, and send_recv / broadcast.
row() {
    name=$1
    shift
    for setting; do set -- "$@" --set "$setting"; shift; done
    "$distsim" run -q scenarios/resharding.dir --csv /dev/stdout "$@" | awk -F, -v name="$name" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        !($at["path"] in seen) {
            seen[$at["path"]] = 1
            ps[n++] = $at["end_ps"] - $at["start_ps"]
        }
        END {
            printf "%-26s", name
            for (i = 0; i < n; i++) printf " %9.1f", ps[i] / 1e9
            printf " %7.1fx\n", ps[0] / ps[4]
        }'
}

printf '%-26s %9s %9s %9s %9s %9s %9s %8s\n' case send_recv +gather 'b. none' 'b. size' 'b. order' \
    fastest speed-up
whole='from0=1 from_inner=8' rows='from0=2 from_inner=4' columns='from0=1 from1=2 from_inner=4'
row '1  rows/2 -> rows/2' $rows to0=2 to_inner=4
row '2  whole -> rows/2' $whole to0=2 to_inner=4
row '3  cols/2 -> rows/2' $columns to0=2 to_inner=4
row '4  cols/8 -> rows/8' from0=1 from1=8 from_inner=1 to0=8 to_inner=1
row '5  rows/4 -> rows/2' from_outer=2 from0=4 from_inner=1 to0=2 to_inner=4
row '6  rows/2 -> rows/3' n0=3072 n2=170 to_machines=3 $rows to0=3 to_inner=4
row '7  rows/4 -> whole' from_machines=1 from0=4 from_inner=1 to0=1 to_inner=8
row '8  rows/4 -> whole' from_machines=1 from0=4 from_inner=1 to0=1 to_inner=8
row '9  cols/2 -> depth/2' $columns to0=1 to2=2 to_inner=4
for shape in '1 1' '1 2' '1 3' '1 4' '2 2' '3 2' '4 2'; do
    set -- $shape
    row "1 -> $1 x $2" n0=268435456 n1=1 n2=1 gpus=$2 from_machines=1 from0=1 from_inner=1 \
        to_machines=$1 to0=1 to_inner=$(($1 * $2))
done
