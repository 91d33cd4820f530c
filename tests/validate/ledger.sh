#!/bin/sh
# ledger.sh DISTSIM [sample|all|zero]: fails when a figure of tests/data/e2e/LEDGER.md gets worse, of any set and
# split: rows predicted and refused, errors (mean, median, 90th percentile, largest, bias), rank correlation,
# regret, the share in the interval, rows that do not fit. (The constant rate's error is the data's, not ours.)
# `sample` looks at every 20th row of each set and split, without the rows that need a plan. ledger.sh DISTSIM write: writes the ledger.
# `zero` looks at the zero-shot errors of all rows.
# ledger.sh DISTSIM compare FILE: FILE has figures as `validate --ledger` prints them, of all rows.
cd "$(dirname "$0")/../.." || exit 2
distsim=$1 which=${2:-sample}
ledger=${LEDGER:-tests/data/e2e/LEDGER.md}
tables=tests/data/e2e/e2e_*.csv

measure() { # all|sample
    every=1 of=$tables
    [ "$1" = sample ] && every=20 of=$(ls $tables | grep -v hexiscale) # a plan for each row: mixed.sh
    # shellcheck disable=SC2086
    "$distsim" validate --ledger --every $every -I scenarios $of
}

zero_shot() {
    # shellcheck disable=SC2086
    "$distsim" validate --zero-shot --ledger -I scenarios $tables
}

section() { # all|sample|zero: its rows as they are recorded
    awk -v want="## $1" '/^## /{on = ($0 ~ "^" want)} on && /^\| [a-z]/ && !/^\| set /' "$ledger"
}

case $which in
write)
    new=$(mktemp) || exit 2
    {
        sed '/^## all/,$d' "$ledger"
        printf '## all rows\n\n' && measure all
        printf '\n## sample: every 20th row of each set and split\n\n' && measure sample | sed '/^| Profile/,$d'
        printf '\n## zero-shot: all rows with the generic profile of their GPU, no testbed calibrated\n\n' && zero_shot
    } >"$new" && cat "$new" >"$ledger"
    rm -f "$new"
    exit
    ;;
sample | all)
    now=$(measure "$which") || exit 1
    ;;
zero)
    now=$(zero_shot) || exit 1
    ;;
compare)
    now=$(cat "$3") || exit 2
    which=all
    ;;
*)
    echo "usage: ledger.sh DISTSIM [sample|all|zero|write|compare FILE]" >&2
    exit 2
    ;;
esac

printf '%s\n' "$now"
{
    section "$which"
    echo "=="
    printf '%s\n' "$now"
} | awk -F' *[|] *' -v which="$which" '
    # What is worse: more (+1), less (-1) or farther from 0 (0) than before, by more than the slack.
    function figure(column, name, worse, slack) { names[column] = name; way[column] = worse; slacks[column] = slack }
    function size(x) { return x < 0 ? -x : x }
    function is_worse(was, is, column,   more) {
        if (was == "-") return 0
        if (is == "-") return 1
        more = way[column] ? way[column] * (is - was) : size(is + 0) - size(was + 0)
        return more > slacks[column]
    }
    BEGIN {
        figure(4, "n", -1, 0); figure(5, "refused", 1, 0); figure(6, "mean", 1, 0.05)
        figure(7, "median", 1, 0.05); figure(8, "p90", 1, 0.05); figure(9, "max", 1, 0.05)
        figure(10, "bias", 0, 0.05); figure(11, "Spearman", -1, 0.002)
        if (which == "zero") {
            figure(12, "in interval", -1, 0); figure(13, "half width", 1, 0.1)
        } else rest()
    }
    function rest() {
        figure(13, "regret within 2 %", -1, 0); figure(14, "worst regret", 1, 0.1)
        figure(15, "in interval", -1, 0); figure(16, "do not fit", 1, 0)
        figure(18, "ran out", -1, 0); figure(19, "said to fit", 1, 0)
    }
    /^==$/ { fresh = 1; next }
    !/^\| [a-z]/ || $2 == "set" { next }
    { key = $2 " " $3 }
    !fresh { known[key] = 1; for (c in names) was[key, c] = $c; next }
    !(key in known) { print "not in the ledger: " key; bad = 1; next }
    {
        seen[key] = 1
        for (c in names) if (is_worse(was[key, c], $c, c)) {
            print "worse: " key ": " names[c] " " $c ", was " was[key, c]; bad = 1
        }
    }
    END {
        for (key in known) if (!(key in seen)) { print "gone: " key; bad = 1 }
        exit bad
    }'
