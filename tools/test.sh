#!/bin/sh
# Builds a preset (default: release) and runs its tests. The last line is "N passed, N failed";
# the exit code is 0 if nothing failed.
#
#   tools/test.sh [release|dev|asan|tsan|clang|coverage] [ctest options…]
cd "$(dirname "$0")/.." || exit 1
preset=release
if [ $# -gt 0 ]; then
    preset=$1
    shift
fi
folder=build-$preset
[ "$preset" = release ] && folder=build

if ! { cmake --preset "$preset" && cmake --build "$folder"; } then
    echo "the build failed"
    echo "0 passed, 1 failed"
    exit 1
fi

log=$folder/test.log
ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" "$@" 2>&1 | tee "$log"

# "97% tests passed, 2 tests failed out of 60"
summary=$(sed -nE 's/.* tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$log")
if [ -z "$summary" ]; then
    echo "no test ran"
    echo "0 passed, 1 failed"
    exit 1
fi
failed=${summary% *}
total=${summary#* }
echo "$((total - failed)) passed, $failed failed"
[ "$failed" = 0 ]
