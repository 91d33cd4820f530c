#!/bin/sh
# run.sh BUILD: does the suite of the passes, or the command that a patch names, see faults?
#
# Each *.patch here puts one fault into a copy of one file: an all_reduce left out, a wrong axis, a missing
# scale, … The patched file is compiled and linked in front of the libraries of BUILD (a release build), with
# the tests that are named below. Without a patch these must pass; with any of them one must fail. A patch
# with a line "Seen by: distsim ARGUMENTS" is linked into distsim instead: that command must end with exit
# code 0 without the patch, and with 3 and both values with the patch (`lesson N --verify`: with 1). A patch that does not apply is a
# failure too: a fault that is not there proves nothing.
set -u
export DISTSIM_TEST_ALL=1 # tests/support/cases.h
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
cc=${CC:-cc}
flags="-std=c17 -D_POSIX_C_SOURCE=200809L -ffp-contract=off -O1 -w -I$root $(pkg-config --cflags criterion gsl)"
rooms=$(printf "$build/libds_%s.a " prove passes temporal exec schedule verify lang strategy ops core base)
libraries="$rooms $(pkg-config --libs criterion gsl) -pthread -lm"
work=${FAULTS_WORK:-$(mktemp -d)} # set for the patches that this script calls itself with
[ "${FAULTS_WORK:-}" ] || trap 'rm -rf "$work"' EXIT

# What is asked, the quick questions first. Of each pair of a binary and a filter one must fail.
suite="stage_verify:stage_verify/*
pipeline_verify:pipeline_verify/mlp
pipeline_widths:pipeline_widths/mlp pipeline_widths:pipeline_widths/skips
families:families/micro* families:families/gpt families:families/llama families:families/mixtral
property_passes:property_passes/random_pairs_0"

tests="ir/passes/test_stage_verify ir/passes/test_pipeline_verify ir/passes/test_pipeline_widths
ir/prove/test_families ir/prove/test_property_passes"

compile() { # SOURCE OBJECT; of a patched table the file of the same name that includes the table
    case $1 in
    *.def) set -- "$root/${file%.def}.c" "$2" "-I$folder" ;;
    esac
    $cc ${3:-} $flags -DDS_SOURCE_DIR="\"$root\"" -c "$1" -o "$2"
}

link() { # FOLDER [OBJECT]: the test programs
    support="$work/prove.o $work/plan.o $work/random_model.o $work/shrink.o $work/pipe.o"
    support="$support $work/stage.o $work/step.o"
    for test in $tests; do
        test=${test##*/test_}
        # shellcheck disable=SC2086
        $cc -o "$1/$test" "$work/test_$test.o" $support ${2:-} $libraries || return 1
    done
}

# Runs the suite up to the first test that fails; that one's first message is in FOLDER/why.
passes() { # FOLDER
    for question in $suite; do
        if ! timeout 120 "$1/${question%%:*}" --jobs 1 --filter "${question#*:}" >"$1/out" 2>&1; then
            grep -m1 -A2 'Assertion Failed' "$1/out" | tail -n 1 | cut -c1-200 >"$1/why"
            [ -s "$1/why" ] && sed -i 's/^\[----\] *//' "$1/why" || tail -n 1 "$1/out" >"$1/why"
            echo "(${question#*:})" >>"$1/why"
            return 1
        fi
    done
}

program() { # FOLDER OBJECT: distsim
    objects=$(cd "$build/CMakeFiles" && find distsim.dir ds_verbs.dir report_page.dir -name '*.o' | while read -r object; do
        source=${object#*/}
        [ ! -f "$root/${source%.o}" ] && [ "${object#report_page}" = "$object" ] || echo "$build/CMakeFiles/$object" # not of a file that has moved
    done)
    # shellcheck disable=SC2046,SC2086
    $cc -o "$1/distsim" $objects "$2" -L"$build" $(PKG_CONFIG_PATH="$build" pkg-config --libs distsim)
}

arguments() { # PATCH: of the command that sees it
    sed -n '/^---/q; s/^Seen by: distsim //p' "$1"
}

runs() { # DISTSIM FOLDER ARGUMENTS: its exit code; its messages are in FOLDER/why
    # shellcheck disable=SC2086
    (cd "$root" && DISTSIM_PROFILES="$build/profiles.db" timeout 120 "$1" $3) >"$2/said" 2>"$2/why"
}

# A test fails; or a lesson is wrong; or another command ends with exit code 3, and both values.
sees() { # FOLDER ARGUMENTS
    if [ -z "$2" ]; then
        ! passes "$1"
        return
    fi
    runs "$1/distsim" "$1" "$2"
    case $?,$2 in
    1,lesson*) grep ': ' "$1/said" | head -n 1 >"$1/why" && return ;;
    3,lesson* | [!3],*) return 1 ;;
    esac
    grep -q ' in the row and .* now' "$1/why"
}

check() { # PATCH
    name=$(basename "$1" .patch)
    folder="$work/$name"
    file=$(sed -n 's|^+++ b/||p' "$1")
    mkdir -p "$folder/$(dirname "$file")"
    cp "$root/$file" "$folder/$file"
    if ! patch -s -d "$folder" -p1 --fuzz=1 <"$1" >"$folder/log" 2>&1; then
        echo "FAILED $name: the patch does not apply to $file any more: $(head -n 1 "$folder/log")"
        return 1
    fi
    command=$(arguments "$1")
    make=link
    [ "$command" ] && make=program
    if ! compile "$folder/$file" "$folder/fault.o" || ! $make "$folder" "$folder/fault.o"; then
        echo "FAILED $name: does not compile"
        return 1
    fi
    if ! sees "$folder" "$command"; then
        echo "FAILED $name: nothing has seen it: $(head -n 1 "$1")"
        return 1
    fi
    echo "seen   $name: $(head -n 1 "$1")"
    sed 's/^/       /' "$folder/why"
}

if [ "${2:-}" ]; then
    check "$2"
    exit
fi

for source in support/prove support/plan support/generate/random_model support/generate/shrink support/pipe support/stage \
    support/step $tests; do
    compile "$root/tests/$source.c" "$work/$(basename $source).o" || exit 1
done
mkdir "$work/none"
link "$work/none" || exit 1
if ! passes "$work/none"; then
    echo "FAILED without any fault:"
    cat "$work/none/why"
    exit 1
fi
for patch in "$root"/tests/faults/*.patch; do arguments "$patch"; done | sort -u >"$work/commands"
while read -r command; do
    runs "$build/distsim" "$work" "$command" && continue
    echo "FAILED without any fault: distsim $command"
    cat "$work/why"
    exit 1
done <"$work/commands"
echo "passed without any fault"
export FAULTS_WORK="$work"
printf '%s\n' "$root"/tests/faults/*.patch | xargs -P 2 -I '{}' "$0" "$build" '{}'
