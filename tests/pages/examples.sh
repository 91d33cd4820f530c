#!/bin/sh
# examples.sh DISTSIM PAGE [write]: a reader who pastes the page's commands sees the page's outputs.
#
# Runs every block "```sh" of the page, in order, in one scratch folder that has the names of the
# repository's root (scenarios, tests, …) and build/distsim. A plain block "```" that follows is the
# block's stdout; a line "…" there means any lines, and blank lines at the end do not count. A block without such a block must exit with 0.
# Blocks that begin with ./tools/ are left out: .ci/run runs these commands.
#
# `write` puts the outputs into the page instead, by rewrite.awk; "…" stays.
distsim=$(realpath "$1")
page=$2
root=$PWD
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/blocks" "$scratch/home"
for name in scenarios tests tools cost_profiles ir; do ln -s "$root/$name" "$scratch/home/$name"; done
ln -s "$(dirname "$distsim")" "$scratch/home/build"

awk -v dir="$scratch/blocks" '
    /^```/ {
        inside = !inside
        if (!inside) { if (file) close(file); after = file ~ /sh$/; next }
        if ($0 == "```sh") { file = sprintf("%s/%03d.sh", dir, ++n); printf "" > file }
        else if ($0 == "```" && after) { file = sprintf("%s/%03d.out", dir, n); printf "" > file }
        else file = ""
        next
    }
    inside && file { print > file }
    !inside && /[^ ]/ { after = 0 }
    ' "$root/$page"

# Prints where the lines of WANTED, "…" being any lines, cannot be the lines of GOT.
matches() { # WANTED GOT
    awk -v wanted="$1" '
        { got[++n] = $0 }
        END {
            while ((getline line < wanted) > 0) want[++m] = line
            while (n && got[n] == "") n--
            at = 1; loose = 0
            for (i = 1; i <= m; i = last + 1) {
                if (want[i] == "…") { loose = 1; last = i; continue }
                for (last = i; last < m && want[last + 1] != "…";) last++
                length_ = last - i + 1
                found = 0
                for (s = at; s + length_ - 1 <= n; s++) {
                    for (k = 0; k < length_ && got[s + k] == want[i + k];) k++
                    if (k == length_ && (last < m || s + k - 1 == n)) { found = 1; break }
                    if (!loose) break
                }
                if (!found) {
                    for (k = i; k <= last; k++) print "< " want[k]
                    exit 1
                }
                at = s + length_
                loose = 0
            }
            if (!loose && at <= n) { print "> " got[at]; exit 1 }
        }' "$2"
}

failed=0
ran=0
for block in "$scratch"/blocks/*.sh; do
    [ -e "$block" ] || break
    case $(head -n 1 "$block") in ./tools/*) continue ;; esac
    ran=$((ran + 1))
    (cd "$scratch/home" && sh -e "$block") >"$scratch/got" 2>"$scratch/errors"
    rc=$?
    wanted=${block%.sh}.out
    if [ "$3" = write ] && [ -e "$wanted" ]; then
        awk -v wanted="$wanted" -f "$here/rewrite.awk" "$scratch/got" >"$wanted.new"
        continue
    elif [ -e "$wanted" ]; then
        matches "$wanted" "$scratch/got" >"$scratch/difference" && continue
    elif [ $rc = 0 ]; then
        continue
    fi
    failed=1
    cat "$block"
    echo "exit code $rc"
    cat "$scratch/difference" "$scratch/errors" 2>/dev/null
    echo "printed:"
    cat "$scratch/got"
done
if [ "$3" = write ]; then
    awk -v dir="$scratch/blocks" '
        /^```/ {
            inside = !inside
            if (!inside && skip) {
                while ((getline line < file) > 0) print line
                skip = 0
            } else if (!inside) after = sh
            sh = inside && $0 == "```sh"
            if (sh) n++
            file = sprintf("%s/%03d.out.new", dir, n)
            if (inside && $0 == "```" && after && (getline line < file) >= 0) { close(file); skip = 1 }
            print
            next
        }
        /[^ ]/ && !inside { after = 0 }
        !skip' "$root/$page" >"$scratch/page" && cat "$scratch/page" >"$root/$page"
fi
echo "$ran blocks of $page run"
[ "$failed" = 0 ] && [ "$ran" -gt 0 ]
