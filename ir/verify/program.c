/* Schedules, and the ranks of per-rank programs. */
#include "ir/verify/internal.h"

#include <string.h>

/* ---- schedules ---- */

static uint64_t item_key(const ds_schedule_item *item) {
    uint64_t hash = ds_hash_mix((uint64_t)(unsigned char)item->kind, (uint64_t)item->chunk);
    return ds_hash_mix(hash, (uint64_t)item->microbatch);
}

static void check_item(ds_checker *ck, const ds_schedule *schedule, const ds_schedule_rank *rank,
                       const ds_schedule_item *item, ds_map *seen) {
    if (item->chunk < 0 || item->chunk >= schedule->chunks) {
        ds_verify__error(ck, DS_ERR_VALUE, rank->loc, NULL,
                         "rank %lld lists %c%lld.%lld, but @%s has chunks 0 to %lld",
                         (long long)rank->rank, item->kind, (long long)item->chunk,
                         (long long)item->microbatch, schedule->name,
                         (long long)schedule->chunks - 1);
        return;
    }
    uint64_t key = item_key(item);
    const uint64_t *before = ds_map_find(seen, key);
    if (!before) {
        ds_map_put(seen, key, (uint64_t)rank->rank);
        return;
    }
    ds_verify__error(ck, DS_ERR_VALUE, rank->loc, NULL,
                     "%c%lld.%lld is listed twice in @%s: by rank %lld and by rank %lld",
                     item->kind, (long long)item->chunk, (long long)item->microbatch,
                     schedule->name, (long long)*before, (long long)rank->rank);
}

/* Checks that every copy of the weights places each chunk once: all chunks have equally many
 * places, on different stages. */
static void check_places(ds_checker *ck, const ds_schedule *schedule) {
    ds_map places, counts;
    ds_map_init(&places);
    ds_map_init(&counts);
    for (uint32_t i = 0; i < schedule->n_place; i++) {
        int64_t chunk = schedule->place_chunk[i], stage = schedule->place_stage[i];
        uint64_t key = ds_hash_mix((uint64_t)chunk, (uint64_t)stage);
        if (chunk < 0 || chunk >= schedule->chunks)
            ds_verify__error(ck, DS_ERR_VALUE, schedule->loc, NULL,
                             "@%s places chunk %lld, but has chunks 0 to %lld", schedule->name,
                             (long long)chunk, (long long)schedule->chunks - 1);
        else if (ds_map_find(&places, key))
            ds_verify__error(ck, DS_ERR_VALUE, schedule->loc, NULL,
                             "@%s places chunk %lld on stage %lld twice", schedule->name,
                             (long long)chunk, (long long)stage);
        uint64_t *count = ds_map_find(&counts, (uint64_t)chunk);
        ds_map_put(&counts, (uint64_t)chunk, count ? *count + 1 : 1);
        ds_map_put(&places, key, 1);
    }
    uint64_t *first = ds_map_find(&counts, 0);
    /* Stops at the first chunk that differs, after at most n_place + 1 turns. */
    for (int64_t c = 0; schedule->n_place && c < schedule->chunks; c++) {
        uint64_t *count = ds_map_find(&counts, (uint64_t)c);
        if (count && *count == *first) continue;
        if (!count)
            ds_verify__error(ck, DS_ERR_VALUE, schedule->loc, NULL,
                             "@%s does not place chunk %lld: write '%lld->STAGE' after 'place'",
                             schedule->name, (long long)c, (long long)c);
        else
            ds_verify__error(ck, DS_ERR_VALUE, schedule->loc, NULL,
                             "@%s places chunk %lld on %llu stages, but chunk 0 on %llu: each copy "
                             "of the weights places every chunk",
                             schedule->name, (long long)c, (unsigned long long)*count,
                             (unsigned long long)*first);
        break;
    }
    ds_map_deinit(&counts);
    ds_map_deinit(&places);
}

void ds_verify__schedule(ds_checker *ck, const ds_schedule *schedule) {
    if (schedule->chunks < 1)
        ds_verify__error(ck, DS_ERR_VALUE, schedule->loc, NULL,
                         "@%s has %lld chunks; a schedule has at least 1", schedule->name,
                         (long long)schedule->chunks);
    check_places(ck, schedule);
    ds_map seen, ranks;
    ds_map_init(&seen);
    ds_map_init(&ranks);
    for (uint32_t r = 0; r < schedule->n_ranks; r++) {
        const ds_schedule_rank *rank = &schedule->ranks[r];
        if (ds_map_find(&ranks, (uint64_t)rank->rank))
            ds_verify__error(ck, DS_ERR_VALUE, rank->loc, NULL, "rank %lld is listed twice in @%s",
                             (long long)rank->rank, schedule->name);
        ds_map_put(&ranks, (uint64_t)rank->rank, 1);
        for (uint32_t i = 0; i < rank->n_items && schedule->chunks >= 1; i++)
            check_item(ck, schedule, rank, &rank->items[i], &seen);
    }
    ds_map_deinit(&ranks);
    ds_map_deinit(&seen);
}

/* ---- ranks ---- */

static bool has_rank(const ds_program *program, int64_t rank) {
    for (uint32_t i = 0; i < program->n_ranks; i++)
        if (program->ranks[i]->rank == rank) return true;
    return false;
}

static bool check_peer(ds_checker *ck, const ds_program *program, const ds_func *func,
                       const ds_op *op, ds_expr peer, const char *word) {
    int64_t rank;
    if (!DS_HAS_EXPR(peer)) {
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "in a rank's body %s says its peer: '%s RANK tag NUMBER'",
                         ds_op_name(op->code), word);
        return false;
    }
    if (!ds_expr_is_int(&ck->unit->exprs, peer, &rank)) return true; /* checked with numbers */
    if (rank == func->rank) {
        ds_verify__error(ck, DS_ERR_VALUE, op->loc, NULL, "rank %lld cannot %s itself",
                         (long long)rank, strcmp(word, "to") == 0 ? "send to" : "receive from");
        return false;
    }
    if (has_rank(program, rank)) return true;
    ds_verify__error(ck, DS_ERR_VALUE, op->loc, NULL, "@%s has no rank %lld; it has %u rank%s",
                     program->name, (long long)rank, program->n_ranks,
                     program->n_ranks == 1 ? "" : "s");
    return false;
}

static bool check_group(ds_checker *ck, const ds_program *program, const ds_func *func,
                        const ds_op *op) {
    bool inside = false, literal = true;
    for (uint32_t i = 0; i < op->n_group; i++) {
        int64_t rank, other;
        if (!ds_expr_is_int(&ck->unit->exprs, op->group[i], &rank)) {
            literal = false;
            continue;
        }
        inside = inside || rank == func->rank;
        if (!has_rank(program, rank)) {
            ds_verify__error(ck, DS_ERR_VALUE, op->loc, NULL,
                             "the group lists rank %lld, which @%s does not have", (long long)rank,
                             program->name);
            return false;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (!ds_expr_is_int(&ck->unit->exprs, op->group[j], &other) || other != rank) continue;
            ds_verify__error(ck, DS_ERR_VALUE, op->loc, NULL, "the group lists rank %lld twice",
                             (long long)rank);
            return false;
        }
    }
    if (inside || !literal) return true;
    ds_verify__error(ck, DS_ERR_VALUE, op->loc, NULL,
                     "rank %lld calls %s with a group that it is not in", (long long)func->rank,
                     ds_op_name(op->code));
    return false;
}

bool ds_verify__rank_op(ds_checker *ck, const ds_program *program, const ds_func *func,
                        const ds_op *op) {
    const ds_op_desc *desc = ds_op_desc_of(op->code);
    if (!desc || !(desc->flags & DS_OPF_COLLECTIVE)) return true;
    if (op->n_over || op->across || op->n_to) {
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "in a rank's body there are no mesh axes and no places: write %s with "
                         "'group (0, 1, ...)', 'to RANK' or 'from RANK'",
                         ds_op_name(op->code));
        return false;
    }
    if (op->code == DS_OP_SEND || op->code == DS_OP_RECV) {
        bool sends = op->code == DS_OP_SEND;
        if (!check_peer(ck, program, func, op, sends ? op->to_rank : op->from_rank,
                        sends ? "to" : "from"))
            return false;
        if (DS_HAS_EXPR(op->tag)) return true;
        ds_verify__error(ck, DS_ERR_TYPE, op->loc, NULL,
                         "%s needs a tag, so that it meets its partner: 'tag 7'",
                         ds_op_name(op->code));
        return false;
    }
    return !op->has_group || check_group(ck, program, func, op);
}

void ds_verify__program(ds_checker *ck, const ds_program *program) {
    ds_map ranks;
    ds_map_init(&ranks);
    for (uint32_t r = 0; r < program->n_ranks; r++) {
        ds_func *func = program->ranks[r];
        if (ds_map_find(&ranks, (uint64_t)func->rank))
            ds_verify__error(ck, DS_ERR_NAME, func->loc, NULL,
                             "program @%s has two bodies for rank %lld", program->name,
                             (long long)func->rank);
        ds_map_put(&ranks, (uint64_t)func->rank, 1);
        ds_verify__func(ck, func, program);
    }
    ds_map_deinit(&ranks);
}
