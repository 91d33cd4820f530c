/* Ops that the program writes many times: a pipeline's sends, one for every microbatch; the layers
 * of each chunk, which is a function of its own.
 *
 * Ops that say the same but for their names and those of their values, of the same types in places
 * of the same name, differ in nothing that a record holds but the op. The first one's record is
 * made in full; the others are copies of it that share its groups, variants and classes, and say so
 * (ds_record.like). What is said is put into words, types by number: each is looked at once.
 *
 * Further apart, communication may do the same whatever it says: gather as many bytes over the same
 * groups, as every linear layer of a tensor-parallel stage does. Such records are made each for
 * itself, but share what they do, and say so too. */
#include "sim/plan/values.h"

#include <stdlib.h>
#include <string.h>

typedef ds_plan_words words;

static void put_word(words *w, uint64_t word) {
    DS_HPUSH(&w->list, word);
}

static void words_clear(words *w) {
    w->list.n = 0;
    w->unlike = false;
}

static uint64_t hash_words(const words *w) {
    uint64_t hash = w->list.n;
    for (uint32_t i = 0; i < w->list.n; i++) hash = ds_hash_mix(hash, w->list.at[i]);
    return hash;
}

/* The entry of these words; a new one, if there is none. */
static ds_alike *entry_of(ds_builder *b, const words *w) {
    uint64_t hash = hash_words(w);
    size_t size = w->list.n * sizeof *w->list.at;
    for (const uint64_t *found; (found = ds_map_find(&b->alike, hash)); hash++) {
        ds_alike *known = (ds_alike *)(uintptr_t)*found;
        if (known->n == w->list.n && memcmp(known->words, w->list.at, size) == 0) return known;
    }
    ds_alike *fresh = DS_NEW(&b->plan->arena, ds_alike);
    *fresh = (ds_alike){.n = w->list.n, .id = b->alike.n};
    fresh->words = DS_NEW_N(&b->plan->arena, uint64_t, w->list.n);
    memcpy(fresh->words, w->list.at, size);
    ds_map_put(&b->alike, hash, DS_KEY(fresh));
    return fresh;
}

/* What words are about. */
enum { OF_SIZES, OF_TYPE, OF_CONTEXT, OF_OP };

/* ---- types ---- */

/* Unequal parts, as a few runs of equal ones; 0 if they are not the same in all turns of loops. The
 * list is shared by many types. */
static uint32_t number_of_sizes(ds_builder *b, const ds_split *split) {
    const uint64_t *found = ds_map_find(&b->sizes, DS_KEY(split->sizes));
    if (found) return (uint32_t)*found;
    words w = {0};
    bool fixed = true;
    put_word(&w, OF_SIZES);
    put_word(&w, split->n_sizes);
    for (uint32_t i = 0; i < split->n_sizes; i++) {
        if (i && split->sizes[i].i == split->sizes[i - 1].i) continue;
        put_word(&w, (uint64_t)split->sizes[i].i << 32 | i);
        fixed = fixed && ds_expr_at(&b->unit->exprs, split->sizes[i])->kind == DS_EXPR_INT;
    }
    uint32_t number = fixed ? entry_of(b, &w)->id + 1 : 0;
    ds_map_put(&b->sizes, DS_KEY(split->sizes), number);
    free(w.list.at);
    return number;
}

static void put_place(words *w, const ds_place *place) {
    put_word(w, place->kind);
    put_word(w, DS_KEY(place->name));
    put_word(w, place->n_coords);
    for (uint32_t i = 0; i < place->n_coords; i++) {
        put_word(w, DS_KEY(place->coords[i].axis));
        put_word(w, place->coords[i].at.i);
    }
    if (place->n_steps) w->unlike = true;
}

static void put_dim(ds_builder *b, words *w, const ds_dim *dim) {
    put_word(w, (uint64_t)dim->size.i << 32 | dim->n_splits);
    for (uint32_t s = 0; s < dim->n_splits; s++) {
        const ds_split *split = &dim->splits[s];
        uint32_t sizes = split->n_sizes ? number_of_sizes(b, split) : 0;
        put_word(w, DS_KEY(split->axis));
        put_word(w, (uint64_t)split->n_sizes << 32 | sizes);
        if (split->n_sizes && !sizes) w->unlike = true;
    }
}

const ds_plan_type *ds_plan__type(ds_builder *b, const ds_type *type) {
    const uint64_t *found = ds_map_find(&b->types, DS_KEY(type));
    if (found) return (const ds_plan_type *)(uintptr_t)*found;
    words w = {0};
    put_word(&w, OF_TYPE);
    put_word(&w, (uint64_t)type->dtype << 32 | type->rank);
    for (uint32_t d = 0; d < type->rank; d++) put_dim(b, &w, &type->dims[d]);
    put_word(&w, (uint64_t)type->n_partials << 1 | type->host);
    for (uint32_t i = 0; i < type->n_partials; i++) {
        put_word(&w, DS_KEY(type->partials[i].axis));
        put_word(&w, type->partials[i].reduction);
    }
    put_place(&w, &type->on);
    ds_plan_type *own = DS_NEW(&b->plan->arena, ds_plan_type);
    *own = (ds_plan_type){.unlike = w.unlike, .uneven = ds_plan__is_uneven(type)};
    own->varies = ds_type_mentions(&b->unit->exprs, type, NULL);
    if (!w.unlike) own->id = entry_of(b, &w)->id;
    ds_map_put(&b->types, DS_KEY(type), DS_KEY(own));
    free(w.list.at);
    return own;
}

/* ---- what is said ---- */

static void put_type(ds_builder *b, words *w, const ds_type *type) {
    const ds_plan_type *known = ds_plan__type(b, type);
    put_word(w, known->id);
    if (known->unlike) w->unlike = true;
}

/* A name says nothing of what is done; a dropout's key says which mask it has. */
static void put_attr(words *w, const ds_attr *attr) {
    if (attr->name && strcmp(attr->name, "name") == 0) return;
    put_word(w, DS_KEY(attr->name));
    put_word(w, (uint64_t)attr->kind << 32 | attr->expr.i);
    put_word(w, (uint64_t)attr->unit << 1 | attr->flag);
    put_word(w, DS_KEY(attr->word));
    if (attr->kind == DS_ATTR_PLACE || attr->n_items) w->unlike = true;
}

/* Equal for contexts in which places of one name are the same. */
static uint32_t number_of_context(ds_builder *b, const ds_context *ctx) {
    const uint64_t *found = ds_map_find(&b->contexts, DS_KEY(ctx));
    if (found) return (uint32_t)*found;
    words w = {0};
    put_word(&w, OF_CONTEXT);
    put_word(&w, DS_KEY(ctx->func->module));
    put_word(&w, ctx->default_place);
    for (uint32_t i = 0; i < ctx->func->n_mesh_params; i++) {
        put_word(&w, DS_KEY(ctx->func->mesh_params[i]));
        put_word(&w, ctx->mesh_args[i]);
    }
    uint32_t number = entry_of(b, &w)->id;
    ds_map_put(&b->contexts, DS_KEY(ctx), number);
    free(w.list.at);
    return number;
}

/* What is launched for the op. */
static void put_kernel(words *w, const ds_kernel *kernel) {
    static const ds_kernel one = {0};
    if (!kernel) kernel = &one;
    put_word(w, (uint64_t)(uint32_t)kernel->extra_launches << 1 | kernel->epilogue);
    put_word(w, (uint64_t)kernel->unread << 32 | kernel->unwritten);
    put_word(w, DS_KEY(kernel->line));
}

static void put_site(ds_builder *b, words *w, const ds_site *site) {
    const ds_op *op = site->op;
    put_word(w, (uint64_t)OF_OP << 32 | number_of_context(b, site->ctx));
    put_word(w, (uint64_t)op->code << 32 | op->n_over);
    put_word(w, (uint64_t)op->n_in << 32 | op->n_out);
    put_word(w, (uint64_t)op->dim.i << 32 | op->dim_to.i);
    put_word(w, (uint64_t)op->across << 32 | op->n_to);
    for (uint32_t i = 0; i < op->n_over; i++) put_word(w, DS_KEY(op->over[i]));
    for (uint32_t i = 0; i < op->n_to; i++) put_place(w, &op->to[i]);
    for (uint32_t i = 0; i < op->n_in; i++) {
        put_type(b, w, site->in[i].type);
        if (ds_plan__has_range(&op->in[i])) w->unlike = true;
    }
    for (uint32_t i = 0; i < op->n_out; i++) put_type(b, w, site->out[i].type);
    for (uint32_t i = 0; i < op->n_attrs; i++) put_attr(w, &op->attrs[i]);
    if (b->plan->kernels != DS_KERNELS_OPS) put_kernel(w, ds_plan__kernel(b, site));
    if (op->across || op->has_group || !ds_op_desc_of(op->code)) w->unlike = true;
}

const ds_record **ds_plan__alike(ds_builder *b, const ds_site *site) {
    if (site->rank_device != DS_NONE || site->region) return NULL;
    words *w = &b->words;
    words_clear(w);
    put_site(b, w, site);
    return w->unlike ? NULL : &entry_of(b, w)->record;
}

/* ---- what is done ---- */

/* Two records of which one was made before: do they hold, and leave, the same on each device? */
typedef struct body {
    uint64_t *words;
    uint32_t n;
    const ds_record *record;
    const struct body *next; /* of the same hash */
} body;

static uint64_t text_word(const ds_builder *b, const ds_op *op, const char *attr) {
    const char *text = ds_attr_text(&b->unit->exprs, ds_attr_find(op->attrs, op->n_attrs, attr));
    return text ? ds_hash_bytes(text, strlen(text)) | 1 : 0;
}

/* Which devices hold how much of unequal parts. */
static void put_sizes(ds_builder *b, words *w, const ds_type *type) {
    for (uint32_t d = 0; d < type->rank; d++)
        for (uint32_t s = 0; s < type->dims[d].n_splits; s++) {
            const ds_split *split = &type->dims[d].splits[s];
            uint32_t sizes = split->n_sizes ? number_of_sizes(b, split) : 0;
            if (sizes) put_word(w, sizes);
            if (split->n_sizes && !sizes) w->unlike = true;
        }
}

/* Local bytes of a value; devices that hold parts of equal sizes have as many. */
static void put_bytes(ds_builder *b, words *w, ds_typed t, uint32_t place, ds_loc loc) {
    int64_t bytes;
    put_word(w, place);
    put_sizes(b, w, t.type);
    if (ds_plan__local_bytes(b, t, ds_plan__placement(b, place), 0, loc, &bytes, NULL) != DS_OK)
        w->unlike = true;
    else
        put_word(w, (uint64_t)bytes);
}

static void put_body(ds_builder *b, words *w, const ds_site *site, const uint32_t *in_places,
                     const uint32_t *out_places, uint64_t stream) {
    static const char *const numbers[] = {"cost", "chunks", "shift"};
    const ds_op *op = site->op;
    if (op->code == DS_OP_RESHARD || op->across || op->n_to || site->rank_device != DS_NONE ||
        site->region) {
        w->unlike = true;
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (ds_attr_find(op->attrs, op->n_attrs, numbers[i])) w->unlike = true;
    put_word(w, (uint64_t)op->code << 32 | op->n_over);
    for (uint32_t i = 0; i < op->n_over; i++) put_word(w, DS_KEY(op->over[i]));
    put_word(w, text_word(b, op, "algorithm"));
    put_word(w, text_word(b, op, "route"));
    put_word(w, ds_op_attr_bool(op, "padded"));
    put_word(w, stream);
    put_word(w, (uint64_t)op->n_in << 32 | op->n_out);
    for (uint32_t i = 0; i < op->n_in; i++) put_bytes(b, w, site->in[i], in_places[i], op->loc);
    for (uint32_t i = 0; i < op->n_out; i++) put_bytes(b, w, site->out[i], out_places[i], op->loc);
}

static const body *first_body(const ds_builder *b, const words *w, uint64_t *hash) {
    *hash = w->list.n;
    for (uint32_t i = 0; i < w->list.n; i++) *hash = ds_hash_mix(*hash, w->list.at[i]);
    const uint64_t *found = ds_map_find(&b->bodies, *hash);
    return found ? (const body *)(uintptr_t)*found : NULL;
}

bool ds_plan__take_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, ds_record *r) {
    words w = {0};
    uint64_t hash;
    if (b->options->schematic && b->options->schematic->apart) return false;
    put_body(b, &w, site, in_places, out_places, r->stream);
    const body *found = w.unlike ? NULL : first_body(b, &w, &hash);
    while (found && (found->n != w.list.n ||
                     memcmp(found->words, w.list.at, found->n * sizeof *found->words) != 0))
        found = found->next;
    free(w.list.at);
    if (!found) return false;
    const ds_record *first = found->record;
    r->like = first;
    r->devices = first->devices;
    r->n_devices = first->n_devices;
    r->variant_of = first->variant_of;
    r->variants = first->variants;
    r->n_variants = first->n_variants;
    r->groups = first->groups;
    r->n_groups = first->n_groups;
    r->group_of = first->group_of;
    return true;
}

void ds_plan__keep_body(ds_builder *b, const ds_site *site, const uint32_t *in_places,
                        const uint32_t *out_places, const ds_record *r) {
    words w = {0};
    uint64_t hash;
    if (b->options->schematic && b->options->schematic->apart) return;
    put_body(b, &w, site, in_places, out_places, r->stream);
    if (!w.unlike) {
        body *fresh = DS_NEW(&b->plan->arena, body);
        *fresh = (body){.n = w.list.n, .record = r, .next = first_body(b, &w, &hash)};
        fresh->words = DS_NEW_N(&b->plan->arena, uint64_t, w.list.n);
        memcpy(fresh->words, w.list.at, w.list.n * sizeof *fresh->words);
        ds_map_put(&b->bodies, hash, DS_KEY(fresh));
    }
    free(w.list.at);
}
