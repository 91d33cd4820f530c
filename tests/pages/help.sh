#!/bin/sh
# help.sh DISTSIM: the help of every verb has none of the constructions of patterns.txt.
# Prints each offence with its verb, exits 1 if any.
distsim=$1
here=$(cd "$(dirname "$0")" && pwd)
LC_ALL=C
export LC_ALL
verbs=$("$distsim" --help | sed -n 's/^  \([a-z][a-z]*\)  *[a-z].*/\1/p')
[ "$verbs" ] || { echo "no verbs in --help"; exit 1; }
offences=$(for verb in $verbs; do
    # One line, as patterns go over the ends of lines; a question would free all of the line.
    text=$("$distsim" help "$verb" | tr '\n?' '  ' | tr -s ' ')
    while IFS='	' read -r pattern advice; do
        case $pattern in '' | '#'* | '^'*) continue ;; esac
        echo "$text" | grep -oP -- ".{0,40}($pattern).{0,40}" | sed "s/^/help $verb: $advice: /"
    done <"$here/patterns.txt"
done)
[ -z "$offences" ] && exit 0
echo "$offences"
exit 1
