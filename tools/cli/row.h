/* A published training run, as a row of a table of measurements, and the scenario that repeats it.
 *
 * Columns (tests/data/e2e_*.csv; others are passed over, a missing one counts as blank): source_ref
 * model params_b layers hidden heads ffn vocab seq gpu gpus gpus_per_node dp tp pp cp ep vpp
 * schedule mbs gbs zero_stage seq_parallel recompute precision iter_time_s mem_gb split. A blank
 * cell is what the source does not say. Nothing is guessed: what a run cannot do without and the
 * row does not give makes it incomplete, with a reason. */
#ifndef DS_CLI_ROW_H
#define DS_CLI_ROW_H

#include "ir/base/csv.h"
#include "ir/base/str.h"

/* Texts belong to the table and are never NULL; a number that is blank or no number is 0, or -1
 * where 0 means something. */
typedef struct cli_row {
    uint32_t line;
    const char *ref, *model, *gpu, *schedule, *recompute, *precision, *split, *memory, *notes;
    double params_b;
    int64_t layers, hidden, heads, ffn, vocab, seq;
    int64_t gpus, gpus_per_node, dp, tp, pp, cp, ep, vpp, mbs, gbs;
    int64_t zero;     /* -1: not stated */
    int64_t sp;       /* -1: not stated, which counts as off */
    double memory_gb; /* 0: not stated, or no number (OOM) */
} cli_row;

void cli_row_read(const ds_csv *csv, uint32_t index, cli_row *out);

/* Fills in what follows from the rest, and says what is missing or contradicts itself:
 *   layers  the only number of layers l of width h, the same for every stage, for which
 *           l (12 h² + 13 h) + (vocab + seq + 2) h is params_b to the digits given
 *   ffn     4 h;  dp, tp, pp, cp, ep, vpp of one GPU, and blank cp, ep, vpp: 1
 * DS_ERR_UNSUPPORTED for a model or layout that there is no scenario for, DS_ERR_DATA else. */
ds_status cli_row_complete(cli_row *row, ds_error *err);

/* How many layers each stage has, as the frameworks of these tables divide them: equally; if that
 * does not go, with the embedding and the head counted as a layer each (Megatron-DeepSpeed's
 * partition method "type:transformer|embedding"); if that does not go either, as many as are needed
 * on each stage, and what is left on the last ones ("type:transformer"). 0 ≤ stage < pp. */
int64_t cli_row_stage_layers(const cli_row *row, int64_t stage);

/* Appends the scenario of a complete row: models/megatron.dir on nodes of its GPUs. Of gbs / (mbs
 * dp) microbatches it has at most `max_microbatches` (0: all). Links are a NVLink's of the GPU's
 * generation and 25 GB/s a GPU between nodes (assumed: InfiniBand HDR), whatever the row says. */
void cli_row_scenario(const cli_row *row, int64_t max_microbatches, ds_buf *out);

/* The least number of microbatches that hold as much as all of the row's would: those that a stage
 * of 1F1B has in flight, pp, of interleaved 1F1B less than 2 pp, and at least 3, the first, the
 * last and one between. */
int64_t cli_row_memory_microbatches(const cli_row *row);

#endif
