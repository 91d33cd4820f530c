#!/bin/sh
# pages.sh ROOT [words]: holds every page (*.md) to the rules that a program can check.
#
#   README.md has at most 10 KB, any other page at most 30 KB, the hand-written reference of the
#   language (ir/lang but the README of the room) at most 46 KB in all. Pages named *generated*
#   have no limit.
#   A relative link leads to a file or folder, and to a heading if the link names one.
#   The prose has none of the constructions of patterns.txt.
#   Every word is known to aspell (en_GB) or stands in words.txt.
#
# With `words` prints the unknown words alone, one a line: the lines that words.txt lacks.
# Prints each offence with its place, exits 1 if any, 3 without aspell.
here=$(cd "$(dirname "$0")" && pwd)
cd "$1" || exit 2
LC_ALL=C
export LC_ALL
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT

find . -name '*.md' -not -path './build*' -not -path './.*' -not -path './shared/*' |
    sed 's,^\./,,' | sort >"$scratch/pages"
# shellcheck disable=SC2046 # one word a page
awk -f "$here/units.awk" $(cat "$scratch/pages") >"$scratch/units"

# ---- words ----

if ! aspell dump dicts 2>/dev/null | grep -qx en_GB; then
    echo "aspell with the dictionary en_GB is not installed: tools/setup.sh installs both"
    exit 3
fi
cut -f2 "$scratch/units" | sed 's/’/'"'"'/g' |
    aspell list --lang=en_GB --encoding=utf-8 --ignore=2 | sed "s/'s\$//; s/s'\$/s/" | sort -u |
    comm -23 - "$here/words.txt" >"$scratch/unknown"
if [ "$2" = words ]; then
    cat "$scratch/unknown"
    exit 0
fi
sort -cu "$here/words.txt" 2>/dev/null || echo "tests/pages/words.txt: not sorted, or a word twice" >"$scratch/offences"
while read -r word; do
    grep -wF -m 1 -- "$word" "$scratch/units" | cut -f1 | sed "s,\$,: unknown word '$word',"
done <"$scratch/unknown" >>"$scratch/offences"

# ---- constructions ----

while IFS='	' read -r pattern advice; do
    case $pattern in '' | '#'*) continue ;; esac
    cut -f2- "$scratch/units" | grep -nP -- "$pattern" | while IFS=: read -r n text; do
        echo "$(sed -n "${n}s/\t.*//p" "$scratch/units"): $advice: $text" | cut -c1-200
    done
done <"$here/patterns.txt" >>"$scratch/offences"

# ---- sizes ----

while read -r page; do
    size=$(wc -c <"$page")
    most=30000
    case $page in README.md) most=10000 ;; *generated*) continue ;; esac
    [ "$size" -le $most ] || echo "$page: $size bytes, more than $most"
done <"$scratch/pages" >>"$scratch/offences"
size=$(cat ir/lang/[!R]*.md | wc -c)
[ "$size" -le 48000 ] ||
    echo "ir/lang: the reference has $size bytes, more than 48000" >>"$scratch/offences"

# ---- links ----

# "PAGE:LINE<tab>target" of every relative link outside of code; "#heading" of every heading.
# shellcheck disable=SC2046
awk '
    FNR == 1 { fence = 0 }
    /^ *```/ { fence = !fence }
    fence || /^    / { next }
    /^#+ / {
        slug = tolower($0); sub(/^#+ +/, "", slug)
        gsub(/[^a-z0-9 _-]/, "", slug); gsub(/ /, "-", slug)
        print FILENAME "#" slug
        next
    }
    {
        line = $0
        gsub(/``[^`]*``/, "", line); gsub(/`[^`]*`/, "", line)
        while (match(line, /\]\([^)]*\)/)) {
            target = substr(line, RSTART + 2, RLENGTH - 3)
            line = substr(line, RSTART + RLENGTH)
            if (target !~ /^[a-z]+:/) print FILENAME ":" FNR "\t" target
        }
    }' $(cat "$scratch/pages") >"$scratch/all"
grep '	' "$scratch/all" | while IFS='	' read -r place target; do
    page=${place%:*}
    file=${target%%#*}
    case $target in *'#'*) heading=${target#*#} ;; *) heading= ;; esac
    if [ "$file" ]; then path=$(dirname "$page")/$file; else path=$page; fi
    if [ ! -e "$path" ]; then
        echo "$place: the link leads nowhere: $target"
        continue
    fi
    [ "$heading" ] || continue
    path=$(realpath --relative-to=. "$path")
    grep -qxF "$path#$heading" "$scratch/all" || echo "$place: no heading has the link's name: $target"
done >>"$scratch/offences"

[ -s "$scratch/offences" ] || exit 0
cat "$scratch/offences"
exit 1
