#!/bin/sh
# ledger.sh DISTSIM [all|sample]: fails when a figure of tests/data/e2e/LEDGER.md gets worse: a mean error
# or a Spearman or regret of a set and split, or the number of rows that are refused.
# `sample` looks at every 20th row of each table. ledger.sh DISTSIM write: writes the ledger.
cd "$(dirname "$0")/../.." || exit 2
distsim=$1 which=${2:-sample}
ledger=${LEDGER:-tests/data/e2e/LEDGER.md}
tables=tests/data/e2e/e2e_*.csv

measure() { # all|sample
    every=1
    [ "$1" = sample ] && every=20
    # shellcheck disable=SC2086
    "$distsim" validate --ledger --every $every -I scenarios $tables
}

section() { # all|sample: its rows as they are recorded
    awk -v want="## $1" '/^## /{on = ($0 ~ "^" want)} on && /^\| [a-z]/ && !/^\| set /' "$ledger"
}

if [ "$which" = write ]; then
    new=$(mktemp) || exit 2
    {
        sed '/^## all/,$d' "$ledger"
        printf '## all rows\n\n' && measure all
        printf '\n## sample: every 20th row of each table\n\n' && measure sample
    } >"$new" && cat "$new" >"$ledger"
    rm -f "$new"
    exit
fi

now=$(measure "$which") || exit 1
printf '%s\n' "$now"
{
    section "$which"
    echo "=="
    printf '%s\n' "$now"
} | awk -F' *[|] *' '
    /^==$/ { fresh = 1; next }
    !/^\| [a-z]/ || $2 == "set" { next }
    { key = $2 " " $3 }
    !fresh { was[key] = 1; refused[key] = $5; mean[key] = $6; rho[key] = $11; regret[key] = $13; next }
    !(key in was) { print "not in the ledger: " key; bad = 1; next }
    {
        seen[key] = 1
        if ($5 + 0 > refused[key] + 0) { print "worse: " key ": refused " $5 ", was " refused[key]; bad = 1 }
        if (mean[key] != "-" && ($6 == "-" || $6 + 0 > mean[key] + 0.05)) {
            print "worse: " key ": mean " $6 ", was " mean[key]; bad = 1
        }
        if (rho[key] != "-" && ($11 == "-" || $11 + 0 < rho[key] - 0.002)) {
            print "worse: " key ": Spearman " $11 ", was " rho[key]; bad = 1
        }
        if (regret[key] != "-" && ($13 == "-" || $13 + 0 < regret[key] + 0)) {
            print "worse: " key ": regret within 2 % " $13 ", was " regret[key]; bad = 1
        }
    }
    END {
        for (key in was) if (!(key in seen)) { print "gone: " key; bad = 1 }
        exit bad
    }'
