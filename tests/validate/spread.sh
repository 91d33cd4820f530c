#!/bin/sh
# spread.sh FILE.csv…: the 5th and 95th percentile of measured/predicted over calib rows of files that
# `validate --zero-shot --out` wrote, each set of the same weight; then for each set the percentiles of
# all other sets, and how many of its rows lie between them. (cost_profiles/FITTING.md)
awk 'FNR == 1 { # columns behind the quoted ones are counted from the end
        n = split($0, head, ",")
        for (i = 1; i <= n; i++) from_end[head[i]] = n - i
        next
    }
    { while (match($0, /"[^"]*"/)) $0 = substr($0, 1, RSTART - 1) "q" substr($0, RSTART + RLENGTH)
      n = split($0, cell, ",")
      measured = cell[n - from_end["measured_s"]]; predicted = cell[n - from_end["predicted_s"]]
      if (cell[2] == "calib" && predicted > 0) print cell[1], measured / predicted }' "$@" |
    sort -k2,2g | awk '
    { set[NR] = $1; ratio[NR] = $2; rows[$1]++ }
    function percentile(part, without,   i, s, total, at, before) {
        for (s in rows) total += s != without
        for (i = 1; i <= NR; i++) {
            if (set[i] == without) continue
            if (at >= 0) before = i
            at += 1 / rows[set[i]] / total
            if (at >= part) return ratio[i]
        }
        return ratio[before]
    }
    END {
        printf "all %.3f %.3f\n", percentile(0.05, ""), percentile(0.95, "")
        for (s in rows) {
            low = percentile(0.05, s); high = percentile(0.95, s); within = 0
            for (i = 1; i <= NR; i++) within += set[i] == s && ratio[i] >= low && ratio[i] <= high
            printf "%s %.3f %.3f %d of %d\n", s, low, high, within, rows[s] | "sort"
            sum += 100 * within / rows[s]; sets++
        }
        close("sort")
        printf "each set left out: %.0f %% of its rows, the mean over sets\n", sum / sets
    }'
