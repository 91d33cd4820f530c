#!/bin/sh
# cpu.sh MEASURE_CPU MPIRUN: the training step that is measured is a training step: its losses fall, and two
# ranks have those of one (the same batch, split). One round writes a profile that has every table.
program=$1
mpirun=$2
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMP_NUM_THREADS OPENBLAS_NUM_THREADS

"$mpirun" --oversubscribe -n 1 "$program" --check >"$scratch/one" || exit 1
"$mpirun" --oversubscribe -n 2 "$program" --check >"$scratch/two" || exit 1
# Sums in another order: the fourth decimal may differ by one.
paste "$scratch/one" "$scratch/two" | awk '
    { d = $1 - $2; if (d < -0.00011 || d > 0.00011) { print "one rank " $1 ", two ranks " $2; bad = 1 } }
    NR > 1 && $1 >= before { print "the loss rises: " before " to " $1; bad = 1 }
    { before = $1 }
    END { if (NR != 5) { print NR " steps instead of 5"; bad = 1 } exit bad }' || exit 1
"$mpirun" -n 1 "$program" --nonsense 2>"$scratch/usage"
[ $? = 2 ] && grep -q '^usage:' "$scratch/usage" || { echo "no usage error"; exit 1; }
