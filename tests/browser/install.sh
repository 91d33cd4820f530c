#!/bin/sh
# install.sh [MODULES]: Chromium, Node and npm by apt if they are missing, and the npm packages of the
# lock file into MODULES (default: build/browser).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
modules=${1:-$here/../../build/browser}
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
wanted=
for program in chromium node npm; do
    package=$program
    [ $program = node ] && package=nodejs
    command -v $program >/dev/null || wanted="$wanted $package"
done
if [ -n "$wanted" ]; then
    as_root apt-get -q -o DPkg::Lock::Timeout=300 update
    # shellcheck disable=SC2086 # one word a package
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends $wanted
fi
mkdir -p "$modules"
cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$modules"
cd "$modules"
npm ci --silent
