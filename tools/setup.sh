#!/bin/sh
# Makes distsim from a bare Debian 12: installs what it needs, builds it into build/. Tests are
# built by tools/test.sh.
#
#   tools/setup.sh                 everything
#   tools/setup.sh --no-packages   only configure and build
#   tools/setup.sh --packages-only
set -eu
cd "$(dirname "$0")/.."

# Why each is needed: CONTRIBUTING.md.
packages="gcc libc6-dev cmake ninja-build pkg-config \
libigraph-dev libgsl-dev libsqlite3-dev libcriterion-dev libjansson-dev \
libprotobuf-c-dev protobuf-c-compiler libonnx-dev libexpat1-dev libblas-dev patch libopenmpi-dev openmpi-bin gnuplot-nox \
aspell aspell-en"

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing() {
    for package in $packages; do
        [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            echo "$package"
    done
}

if [ "${1:-}" != --no-packages ]; then
    wanted=$(missing)
    if [ -n "$wanted" ]; then
        as_root apt-get -q -o DPkg::Lock::Timeout=300 update
        # shellcheck disable=SC2086 # one word a package
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
            install --no-install-recommends $wanted
    fi
fi
if [ "${1:-}" != --packages-only ]; then
    cmake --preset release
    cmake --build build --target distsim
fi
