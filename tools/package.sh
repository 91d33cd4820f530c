#!/bin/sh
# Makes the Debian packages and tries them.
#
#   tools/package.sh          distsim.deb and distsim-dev.deb, without MPI and ONNX
#   tools/package.sh full     distsim-full.deb, with both
#
# The packages lie in build-package/ or build-package-full/. The program of the package is unpacked
# and run: the package must need neither MPI nor ONNX, and must find its scenarios and its costs.
set -eu
cd "$(dirname "$0")/.."
preset=package${1:+-$1}

tools="dpkg-dev file"
for tool in $tools; do
    [ "$(dpkg-query -Wf '${db:Status-Status}' "$tool" 2>/dev/null)" = installed ] && continue
    if [ "$(id -u)" = 0 ]; then root=; else root=sudo; fi
    # shellcheck disable=SC2086 # one word a package, and none
    $root apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $tools
    break
done

cmake --preset "$preset" >/dev/null
cmake --build "build-$preset"
(cd "build-$preset" && rm -f ./*.deb && cpack >/dev/null)

package=$(echo "build-$preset"/distsim*_*.deb | tr ' ' '\n' | grep -v -- -dev_)
depends=$(dpkg-deb -f "$package" Depends)
echo "$package: $(dpkg-deb -f "$package" Installed-Size) KiB installed, needs $depends"
if [ "$preset" = package ] && echo "$depends" | grep -E 'mpi|protobuf'; then
    echo "the package must not need MPI or ONNX" >&2
    exit 1
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
dpkg-deb -x "$package" "$root"
(cd / && "$root/usr/bin/distsim" run "$root/usr/share/distsim/tour.dir") | grep 'step time'
