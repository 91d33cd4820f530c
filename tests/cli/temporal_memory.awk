# Of `distsim run --json` of a decode in tiles: a line with the memory beside the cache and the cache in the end, in per
# cent of 48 GiB; a line for each step of the cache, with its size and with the part of the run before it; and for each
# step the time before, the turns before, the whole time and all turns, to which a time of each token can be added.
function share(bytes) { return 100 * bytes / (48 * 2 ^ 30) }
{ gsub("[{},]", "") }
/"step_time_ps"/ { all = $2 }
/^  "peak_memory_bytes"/ { peak = $2 }
/"first_token_ps"/ { first = $2 }
/"cache_bytes"/ { cache = $2 }
/"turn": / { turn[++n] = $2 }
/"bytes": / && n > grown { bytes[++grown] = $2 }
/"token_ps": .$/ { listed = 1; next }
/\]/ { listed = 0 }
/"per_class"/ { exit } # the rest, with each segment of the critical path, is long
listed { ps[++m] = $1 }
END {
    print "rest", share(peak - cache), "cache", share(cache)
    at = first
    k = 1
    for (i = 1; i <= m; i++) {
        for (; k < n && turn[k + 1] == i; k++)
            print "step", share(bytes[k + 1]), at / 1e9, i, all / 1e9, m + 1
        at += ps[i]
    }
    if (n) print "step", share(bytes[1]), 0, 0, all / 1e9, m + 1
    if (n) print "tile", (ps[m] - ps[m < 512 ? m : 512]) / 1e9 / (n - 1)
}
