#!/bin/sh
# arguments.sh ROOT: a function of ir, sim, search and tools takes at most seven arguments.
#
# Reads declarations and definitions outside of braces, and pointers to functions anywhere, without
# comments, texts and preprocessor lines. Of each list in parentheses, innermost first, the commas
# are counted. Two lists are dictated by libraries: on_entity is a handler of expat, sgemm_ is of
# BLAS. Prints each offence, exits 1 if any.
cd "$1" || exit 2

offences=$(find ir sim search tools -name '*.[ch]' ! -path '*/vendor/*' -exec awk -v most=7 '
    function count(list) { return gsub(/,/, ",", list) + 1 }
    function weigh(text,    list) {
        while (match(text, /\([^()]*\)/)) {
            list = substr(text, RSTART, RLENGTH)
            if (count(list) > most && text !~ /(on_entity|sgemm_)\(/)
                print FILENAME ":" first ": " count(list) " arguments:" substr(text, 1, RSTART - 1)
            text = substr(text, 1, RSTART - 1) "_" substr(text, RSTART + RLENGTH)
        }
    }
    FNR == 1 { depth = 0; comment = 0; directive = 0; statement = "" }
    {
        line = $0
        if (comment) {
            if (!sub(/^([^*]|\*+[^*\/])*\*+\//, "", line)) next
            comment = 0
        }
        if (directive || line ~ /^[[:space:]]*#/) {
            directive = line ~ /\\$/
            next
        }
        gsub(/"([^"\\]|\\.)*"/, "T", line)
        gsub(/\047([^\047\\]|\\.)+\047/, "T", line)
        sub(/\/\/.*/, "", line)
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        if (sub(/\/\*.*/, "", line)) comment = 1
        if (depth == 0 || statement != "" || line ~ /\(\*[a-z_0-9]+\)\(/) {
            if (statement == "") first = FNR
            statement = statement " " line
        }
        depth += gsub(/[{]/, "{", line) - gsub(/[}]/, "}", line)
        if (line ~ /[;}{]/ || statement ~ /^ *$/) {
            if (statement != "") weigh(statement)
            statement = ""
        }
    }' {} +)
[ -z "$offences" ] && exit 0
echo "functions of more than seven arguments: give what belongs together a struct"
echo "$offences"
exit 1
