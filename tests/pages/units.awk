# units.awk PAGE…: the prose of pages, one paragraph, item, heading or table row a line, as
# "PAGE:LINE<tab>text". Fences, indented code, inline code, addresses and comments are left out.
function flush() {
    if (unit != "") print place "\t" unit
    unit = ""
}
FNR == 1 { flush(); fence = 0; item = 0; blank = 1 }
/^ *(```|~~~)/ { flush(); fence = !fence; blank = 1; next }
fence { next }
/^[ \t]*$/ { flush(); blank = 1; next }
/^    / && blank && !item { next }
/^    / && unit == "" { next }
{
    line = $0
    starts = line ~ /^ *([*-]|[0-9]+\.) / || line ~ /^[#|>]/
    if (starts || blank) { flush(); place = FILENAME ":" FNR }
    if (starts) item = line ~ /^ *([*-]|[0-9]+\.) /
    else if (blank && line !~ /^ /) item = 0
    blank = 0
    gsub(/``[^`]*``/, " ", line)
    gsub(/`[^`]*`/, " ", line)
    gsub(/\]\([^)]*\)/, "]", line)
    gsub(/<!--[^>]*-->/, "", line)
    gsub(/<[a-z\/][^>]*>/, " ", line)
    gsub(/https?:\/\/[^ )|]*/, "", line)
    sub(/^ +/, "", line)
    unit = unit (unit == "" ? "" : " ") line
    if (line ~ /^[#|]/) flush()
}
END { flush() }
