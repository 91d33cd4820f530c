#!/bin/sh
# embed.sh BUILD_FOLDER COMPILER [flags…]: installs into a scratch folder and builds a program against
# that, the way a user would: `pkg-config --cflags --libs distsim`.
set -eu
build=$1
shift
source=$(dirname "$0")/embed.c
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch" >/dev/null
pc=$(find "$scratch" -name distsim.pc)
flags=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$scratch" \
    --cflags --libs distsim)
# shellcheck disable=SC2086 # flags are words
"$@" -std=c17 -Wall -Wextra -Werror "$source" -o "$scratch/embed" $flags
LD_LIBRARY_PATH=$(dirname "$pc")/.. "$scratch/embed" # where the shared library was built too
test -x "$scratch/bin/distsim"
"$scratch/bin/distsim" --version
