/* The layer of one rank's experts: two grouped products, activation, permutation. */
#include "tools/measured/internal.h"

#include <stdio.h>
#include <string.h>

/* "deepgemm-grouped-… (one GEMM: 4 groups, m=8192/group, n=4096, k=7168)" */
static bool read_single(const char *kernel, int64_t bmnk[4]) {
    long long v[4];
    const char *at = strstr(kernel, "(one GEMM: ");
    if (!at || sscanf(at, "(one GEMM: %lld groups, m=%lld/group, n=%lld, k=%lld)", &v[0], &v[1],
                      &v[2], &v[3]) != 4)
        return false;
    for (int i = 0; i < 4; i++) {
        if (v[i] < 1 || v[i] > (INT64_C(1) << 24)) return false;
        bmnk[i] = v[i];
    }
    return true;
}

typedef struct layer {
    int64_t tokens, hidden, inter, experts, topk, tp, ep;
} layer;

static ds_status read_layer(const measured_reader *r, layer *l) {
    DS_TRY(measured_int(r, "num_tokens", 1, &l->tokens));
    DS_TRY(measured_int(r, "hidden", 1, &l->hidden));
    DS_TRY(measured_int(r, "inter", 1, &l->inter));
    DS_TRY(measured_int(r, "experts", 1, &l->experts));
    DS_TRY(measured_int(r, "topk", 1, &l->topk));
    DS_TRY(measured_int(r, "moe_tp", 1, &l->tp));
    return measured_int(r, "moe_ep", 1, &l->ep);
}

/* What the kernels between and around the products move has a curve for each format of scales. */
static const char *passes_of(const char *format) {
    static const struct {
        const char *format, *op;
    } known[] = {{"tensor", "experts_tensor"},
                 {"block", "experts_block"},
                 {"mxfp8", "experts_block"},
                 {"nvfp4", "experts_nvfp4"},
                 {"mxfp4", "experts_mxfp4"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(format, known[i].format) == 0) return known[i].op;
    return "experts";
}

/* A rank has tokens·topk/ep pairs of a token and an expert, spread evenly over its experts; with
 * fewer pairs than experts the rest of the experts does nothing. All kernels of the layer besides
 * the two products count as one pass: tokens are copied to their experts, in the products' dtype;
 * the activation reads two results of the first product, and writes one operand of the second;
 * results are read and added up, and since a rank does not know which tokens others will add to,
 * the rank reads and writes all tokens of the group. */
static void add_layer(measured_row *row, ds_dtype dtype, const layer *l) {
    int64_t pairs = TIMES(l->tokens, l->topk) / l->ep, experts = l->experts / l->ep;
    if (pairs < 1) pairs = 1;
    if (experts < 1) experts = 1;
    if (experts > pairs) experts = pairs;
    int64_t each = (pairs + experts - 1) / experts, inter = l->inter / l->tp;
    if (inter < 1) inter = 1;
    int64_t narrow = TIMES(pairs, l->hidden + inter, (int64_t)ds_dtype_bits(dtype)) / 8;
    int64_t read = TIMES(4, pairs, inter + l->hidden) + TIMES(2, l->tokens, l->hidden);
    int64_t written = TIMES(2, l->tokens, l->hidden) + narrow;
    measured_part_product(row, dtype, (int64_t[]){experts, each, 2 * inter, l->hidden});
    measured_part_product(row, dtype, (int64_t[]){experts, each, l->hidden, inter});
    row->parts[0].work.grouped = row->parts[1].work.grouped = true;
    measured_part_bytes(row, passes_of(row->format), dtype, (int64_t[]){read, written},
                        (int64_t[]){pairs, l->hidden});
}

ds_status measured_read_moe(const measured_reader *r, measured_row *row) {
    ds_dtype dtype;
    int64_t bmnk[4];
    layer l;
    const char *distribution = measured_cell(r, "distribution");
    DS_TRY(measured_dtype(r, row->dtype, &dtype, &row->format));
    DS_TRY(measured_real(r, "time_us", &row->us));
    if (read_single(row->kernel, bmnk)) {
        measured_part_product(row, dtype, bmnk);
        return DS_OK;
    }
    DS_TRY(read_layer(r, &l));
    if (strncmp(distribution, "power_law", 9) == 0) {
        row->refused = "tokens by a power law, of which no model of the language says anything";
        return DS_OK;
    }
    add_layer(row, dtype, &l);
    return DS_OK;
}
