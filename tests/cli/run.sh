#!/bin/sh
# run.sh DISTSIM FILE: runs one golden test of the command line.
#
# FILE carries its own test in comments (`//`, or `#` in .test files), from column 1:
#   // RUN: distsim check %s       the command, by sh; %s is FILE, %t a scratch folder
#   // EXIT: 1                     its exit code (default 0)
#   // MEMORY: 2000000             KiB of addresses that it may have; builds with ASan or TSan, which map
#                                  terabytes, have no such limit
#   // EXPECT: text                a line of stdout contains the text,
#   // EXPECT-ERR: text            or of stderr; in the written order, other lines may stand between
#   // EXPECT-NOT: text            no line of stdout or stderr contains it
#   // EXPECT-EXACT: file          stdout equals this file (path beside FILE)
# Runs in the root of the repository, so that messages show the same paths everywhere.
PATH=$(dirname "$1"):$PATH
export PATH
file=$2
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT

directive() { sed -nE "s,^(//|#) $1: ?(.*)\$,\\2,p" "$file"; }

command=$(directive RUN | sed "s,%s,$file,g; s,%t,$scratch,g")
if [ -z "$command" ]; then
    echo "$file: no RUN line"
    exit 1
fi
exit_wanted=$(directive EXIT)
memory=$(directive MEMORY)
[ -n "$memory" ] && grep -qa '__[at]san_init' "$1" && memory=
(
    [ -z "$memory" ] || ulimit -v "$memory"
    exec sh -c "$command" >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
)
exit_got=$?

failed=0
complain() {
    echo "$file: $1"
    failed=1
}
[ "$exit_got" = "${exit_wanted:-0}" ] || complain "exit code $exit_got instead of ${exit_wanted:-0}"

in_order() { # DIRECTIVE STREAM
    directive "$1" >"$scratch/wanted"
    [ -s "$scratch/wanted" ] || return
    awk -v name="$1" -v at=0 -v n=0 'NR == FNR { wanted[n++] = $0; next }
        at < n && index($0, wanted[at]) { at++ }
        END { if (at < n) { print name ": " wanted[at]; exit 1 } }' \
        "$scratch/wanted" "$scratch/$2" >"$scratch/missing" ||
        complain "not found (in this order) on $2: $(cat "$scratch/missing")"
}
in_order EXPECT stdout
in_order EXPECT-ERR stderr

directive EXPECT-NOT >"$scratch/unwanted"
if [ -s "$scratch/unwanted" ] && grep -hFf "$scratch/unwanted" "$scratch/stdout" "$scratch/stderr"; then
    complain "the lines above should not be there"
fi
exact=$(directive EXPECT-EXACT)
if [ -n "$exact" ]; then
    diff -u "$(dirname "$file")/$exact" "$scratch/stdout" || complain "stdout differs from $exact"
fi
if [ "$failed" = 1 ] || grep -qE "Sanitizer|runtime error:" "$scratch/stderr"; then
    echo "--- $command"
    echo "--- stdout"
    cat "$scratch/stdout"
    echo "--- stderr"
    cat "$scratch/stderr"
fi
exit "$failed"
