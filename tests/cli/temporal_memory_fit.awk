# Published figures beside lines of temporal_memory.awk of four files: causal and window of GPT-2, of Llama. One constant
# of memory a model, one time of each token.
function off(said, found, most) {
    miss = found > said ? found - said : said - found
    if (miss / most > worst) worst = miss / most
}
function memory(c,    k) {
    worst = 0
    for (k = 1; k <= 8; k++) off(3 + 5 * k, rest[1] + c + tile[1] * k, 2) # 8, 13, … 43
    off(44, rest[1] + c + cache[1], 2)                                    # PyTorch
    off(84, rest[1] + c + 2 * cache[1], 4)                                # JAX
    off(13, rest[2] + c + cache[2], 2)                                    # window
    return worst
}
function times(ms,    k) {
    worst = 0
    for (k = 1; k <= 7; k++) off(said[k], 100 * (before[k] + ms * turn[k]) / (all + ms * turns), 2)
    return worst
}
FNR == 1 { file++ }
$1 == "rest" { rest[file] = $2; cache[file] = $4 }
$1 == "step" && (!tile[file] || $2 < tile[file]) { tile[file] = $2 }
$1 == "step" { steps[file]++ }
$1 == "step" && file == 1 && $4 { before[++n] = $3; turn[n] = $4; all = $5; turns = $6 }
$1 == "tile" && file == 1 { tile_ms = $2 }
END {
    split("7.5 16 26 39 52.5 67.5 84", said, " ")
    for (c = least = 10; c >= 0; c -= 0.01) if (memory(c) < memory(least)) least = c
    for (ms = best = 40; ms >= 0; ms -= 0.1) if (times(ms) < times(best)) best = ms
    printf "GPT-2: %d steps of %.4f, window %.3f, constant %.2f\n", steps[1], tile[1], cache[2], least
    printf "memory off by %.2f of the tolerance\n", memory(least)
    printf "times off by %.2f points, %.1f tiles beside the tiles\n", 2 * times(best), (all + best * turns) / turns / tile_ms - 4.5
    for (k = 1; k <= 7; k++) printf "%.1f ", 100 * (before[k] + best * turn[k]) / (all + best * turns)
    c = 27 - rest[3] - tile[3]
    printf "\nLlama: %d steps of %.3f, window %.1f, in the end %.1f\n", steps[3], tile[3], rest[4] + cache[4] + c, rest[3] + 8 * tile[3] + c
    print (memory(least) < 1 && times(best) < 1 ? "within" : "MISSED")
}
