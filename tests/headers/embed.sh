#!/bin/sh
# embed.sh BUILD_FOLDER COMPILER [flags…]: installs into a scratch folder and uses that the way a user
# would: builds a program with `pkg-config --cflags --libs distsim`, and runs scenarios elsewhere with
# the installed distsim. Nothing of it may come from the trees that it was made in.
set -eu
build=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/moved
cmake --install "$build" --prefix "$prefix" >/dev/null
pc=$(find "$prefix" -name distsim.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --cflags --libs distsim)
# shellcheck disable=SC2086 # flags are words
"$@" -std=c17 -Wall -Wextra -Werror "$here/embed.c" -o "$scratch/embed" $flags
LD_LIBRARY_PATH=$(dirname "$pc")/.. "$scratch/embed" # where the shared library was built too
distsim=$prefix/bin/distsim
"$distsim" --version

fail() {
    echo "$1"
    exit 1
}

check_paths() { # neither the sources nor the build folder are named in what is installed
    for file in "$distsim" "$(find "$prefix" -name libdistsim.a)" "$pc"; do
        ! grep -qF "${here%/tests/headers}/" "$file" || fail "$file names the sources"
        ! grep -qF "$build/profiles.db" "$file" || fail "$file names $build/profiles.db"
    done
}
case "$*" in
    *-fsanitize* | *--coverage*) ;; # their notes name the sources
    *) check_paths ;;
esac

unset DISTSIM_PROFILES DISTSIM_PATH
mkdir "$scratch/work"
cd "$scratch/work"
cp "$prefix/share/distsim/distir-mlp.dir" mine.dir
"$distsim" run mine.dir >summary || fail "the installed program does not run a scenario elsewhere"
grep -q "step time" summary || fail "no step time"
# An unreadable database of its own is an error: no other one is taken silently.
: >"$prefix/share/distsim/profiles.db"
! "$distsim" run mine.dir >summary 2>error || fail "another cost database than the installed one"
grep -qF "$prefix/share/distsim/profiles.db" error || fail "$(cat error)"
