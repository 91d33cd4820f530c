#!/bin/sh
# run.sh DISTSIM MODULES [SCREENSHOTS]: opens reports in a headless Chromium (reports.js). Without
# Chromium, Node, or the npm packages in MODULES (install.sh) it says so and ends with 77, skipped;
# with DISTSIM_BROWSER=1, as in CI, it fails then.
here=$(cd "$(dirname "$0")" && pwd)
skip() {
    echo "skipped: $1; tests/browser/install.sh installs it"
    [ "$DISTSIM_BROWSER" = 1 ] && exit 1
    exit 77
}
chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || skip "no Chromium"
command -v node >/dev/null || skip "no Node"
[ -d "$2/node_modules/chrome-remote-interface" ] || skip "no npm packages in $2"
exec node "$here/reports.js" "$1" "$chromium" "$2" $3
