# rewrite.awk -v wanted=FILE GOT: the lines of GOT that stand in the places of the lines of WANTED.
# Without a line "…" all of GOT. Else each run of lines of WANTED is found again by its first line,
# numbers and units apart, and keeps its length; a run that is not found stays as it was.
function shape(line) {
    gsub(/[0-9][0-9.,]*/, "0", line)
    gsub(/ (ps|ns|us|ms|s|B|KiB|MiB|GiB|TiB)( |$)/, " ", line)
    gsub(/[ #*+-]+/, " ", line)
    return line
}
{ got[++n] = $0 }
END {
    while ((getline line < wanted) > 0) {
        want[++m] = line
        if (line == "…") elided = 1
    }
    while (n && got[n] == "") n--
    if (!elided) {
        for (i = 1; i <= n; i++) print got[i]
        exit
    }
    at = 1
    for (i = 1; i <= m; i = last + 1) {
        for (last = i; want[i] != "…" && last < m && want[last + 1] != "…";) last++
        if (want[i] == "…") { print "…"; continue }
        for (s = at; s <= n && shape(got[s]) != shape(want[i]);) s++
        if (s > n) print "not found: " want[i] > "/dev/stderr"
        for (k = i; k <= last; k++) print (s > n ? want[k] : got[s + k - i])
        if (s <= n) at = s + last - i + 1
    }
}
