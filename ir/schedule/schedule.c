/* Names of schedules: the forms of schedules.def, the parameters that each takes, and the maker
 * that the generators write with. */
#include "ir/schedule/schedule.h"

#include "ir/base/file.h"
#include "ir/lang/lang.h"
#include "ir/schedule/internal.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS  ((int64_t)1 << 24)
#define MAX_SOURCE ((size_t)64 << 20) /* bytes of a file:PATH, as of any other file */

/* ---- forms ---- */

typedef enum placement { LINE, LOOP, WAVE, TWO_WAYS } placement;

typedef struct form {
    ds_schedule_form doc;
    ds_schedule_generator *make;
    placement placement;
    int64_t v;     /* chunks on a stage: > 0 this many, else any number … */
    int64_t usual; /* … and this many by default */
} form;

/* The lines of schedules.def. */
static const form forms[] = {
#define SCHEDULE(generator, name, placement, chunks, usual, ...)                                   \
    {{name, __VA_ARGS__}, ds_schedule__##generator, placement, chunks, usual},
#include "ir/schedule/schedules.def"
#undef SCHEDULE
};
enum { N_FORMS = sizeof forms / sizeof *forms };

const ds_schedule_form *ds_schedule_form_at(uint32_t i) {
    return i < N_FORMS ? &forms[i].doc : NULL;
}

int64_t ds_schedule_virtual_stages(const char *name, int64_t asked) {
    for (int i = 0; i < N_FORMS; i++) {
        const form *f = &forms[i];
        if (strcmp(f->doc.name, name) != 0) continue;
        bool takes = !f->v && asked >= 2 && (f->placement != WAVE || asked % 2 == 0);
        return takes ? asked : f->usual;
    }
    return asked;
}

static ds_status find_form(const char *name, const form **out, ds_error *err) {
    const char *names[N_FORMS];
    for (int i = 0; i < N_FORMS; i++) {
        names[i] = forms[i].doc.name;
        if (strcmp(names[i], name) == 0) return *out = &forms[i], DS_OK;
    }
    const char *near = ds_suggest(name, names, N_FORMS);
    return ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                        "there is no schedule \"%s\"%s%s%s (a schedule of your own is \"@name\" or "
                        "\"file:PATH\")",
                        name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

/* ---- the maker ---- */

void ds_schedule__put(ds_schedule_maker *maker, int64_t rank, char kind, int64_t chunk,
                      int64_t microbatch) {
    ds_schedule_rank *list = &maker->schedule->ranks[rank];
    assert(list->n_items < maker->cap);
    list->items[list->n_items++] = (ds_schedule_item){kind, chunk, microbatch, false};
}

void ds_schedule__join(ds_schedule_maker *maker, int64_t rank) {
    ds_schedule_rank *list = &maker->schedule->ranks[rank];
    list->items[list->n_items - 1].with_next = true;
}

int64_t ds_schedule__wave(const ds_schedule_maker *maker, int64_t chunk) {
    int64_t along = chunk % maker->p;
    return chunk / maker->p % 2 ? maker->p - 1 - along : along;
}

static void place(ds_schedule_maker *maker, placement how) {
    ds_schedule *s = maker->schedule;
    s->n_place = (uint32_t)(s->chunks * (how == TWO_WAYS ? 2 : 1));
    s->place_chunk = DS_NEW_N(&maker->unit->arena, int64_t, s->n_place);
    s->place_stage = DS_NEW_N(&maker->unit->arena, int64_t, s->n_place);
    for (int64_t i = 0; i < s->n_place; i++) {
        int64_t chunk = i % s->chunks;
        s->place_chunk[i] = chunk;
        s->place_stage[i] = how == WAVE ? ds_schedule__wave(maker, chunk) : chunk % maker->p;
        if (i >= s->chunks) s->place_stage[i] = maker->p - 1 - chunk; /* the copy that runs back */
    }
}

/* "zb-h1" becomes @zb_h1; "1f1b" @s1f1b, as names begin with a letter. */
static const char *symbol_of(ds_unit *unit, const char *name) {
    char symbol[64];
    size_t n = 0;
    if (isdigit((unsigned char)*name)) symbol[n++] = 's';
    for (; *name && n < sizeof symbol - 1; name++) symbol[n++] = *name == '-' ? '_' : *name;
    return ds_intern_n(&unit->strings, symbol, n);
}

static void maker_init(ds_schedule_maker *maker, const form *entry) {
    ds_arena *arena = &maker->unit->arena;
    ds_schedule *s = maker->schedule = DS_NEW(arena, ds_schedule);
    s->name = symbol_of(maker->unit, entry->doc.name);
    s->trivia.blank_before = true;
    s->chunks = maker->p * maker->v;
    place(maker, entry->placement);
    s->n_ranks = (uint32_t)maker->p;
    s->ranks = DS_NEW_N(arena, ds_schedule_rank, s->n_ranks);
    maker->cap = (uint32_t)(3 * maker->m * maker->v);
    for (uint32_t r = 0; r < s->n_ranks; r++) {
        s->ranks[r].rank = r;
        s->ranks[r].items = DS_NEW_N(arena, ds_schedule_item, maker->cap);
    }
}

/* ---- parameters ---- */

static ds_status check_range(const char *what, int64_t value, int64_t least, ds_error *err) {
    if (value >= least) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                        "a schedule needs at least %lld %s, not %lld", (long long)least, what,
                        (long long)value);
}

static ds_status choose_chunks(const form *entry, const ds_schedule_options *options, int64_t *v,
                               ds_error *err) {
    int64_t asked = options->virtual_stages;
    *v = entry->v;
    if (entry->v > 0 && (asked <= 1 || asked == entry->v)) return DS_OK;
    if (entry->v > 0)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "\"%s\" has %lld chunk%s on a stage, always: virtual_stages = %lld "
                            "does not fit",
                            entry->doc.name, (long long)entry->v, entry->v == 1 ? "" : "s",
                            (long long)asked);
    *v = asked ? asked : entry->usual;
    if (entry->placement == WAVE && asked == 1) *v = entry->usual;
    return DS_OK;
}

static ds_status check_options(const form *entry, const ds_schedule_options *options,
                               ds_schedule_maker *maker, ds_error *err) {
    int64_t p = options->stages, m = options->microbatches;
    DS_TRY(check_range("stage", p, 1, err));
    DS_TRY(check_range("microbatch", m, 1, err));
    DS_TRY(check_range("virtual stages", options->virtual_stages, 0, err));
    DS_TRY(choose_chunks(entry, options, &maker->v, err));
    if (p > MAX_ITEMS || m > MAX_ITEMS || maker->v > MAX_ITEMS || p * m > MAX_ITEMS / 3 / maker->v)
        return ds_error_set(err, DS_ERR_LIMIT, DS_NOWHERE,
                            "%lld stages of %lld chunks with %lld microbatches are more than the "
                            "%lld items that a schedule may have",
                            (long long)p, (long long)maker->v, (long long)m, (long long)MAX_ITEMS);
    int64_t f = options->f_ps, b = options->b_ps, w = options->w_ps;
    int64_t most = INT64_MAX / (12 * p * m * maker->v); /* all items in a row fit into int64 */
    if (f < 0 || b < 0 || w < 0 || f > most || b > most || w > most)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "F = %lld, B = %lld, W = %lld of a chunk: durations here are from 0 to "
                            "%lld",
                            (long long)f, (long long)b, (long long)w, (long long)most);
    bool given = f || b || w;
    maker->times = given ? (ds_schedule_durations){.f = f, .b = b, .w = w}
                         : (ds_schedule_durations){.f = 1, .b = 1, .w = 1};
    maker->p = p;
    maker->m = m;
    return DS_OK;
}

static ds_status generate(ds_unit *unit, const ds_schedule_options *options,
                          const ds_schedule **out, ds_error *err) {
    const form *entry = NULL;
    DS_TRY(find_form(options->name, &entry, err));
    ds_schedule_maker maker = {.unit = unit, .options = options};
    DS_TRY(check_options(entry, options, &maker, err));
    maker_init(&maker, entry);
    DS_TRY(entry->make(&maker, err));
    *out = maker.schedule;
    return DS_OK;
}

/* ---- schedules that are written out ---- */

static ds_status read_file(ds_unit *unit, const char *path, const ds_schedule **out,
                           ds_error *err) {
    ds_buf text = {0};
    ds_status status = ds_file_read(path, DS_NOWHERE, MAX_SOURCE, &text, err);
    ds_module *module = NULL;
    if (!status) module = ds_unit_add_module(unit, path, text.text ? text.text : "", text.n);
    ds_buf_deinit(&text);
    DS_TRY(status);
    DS_TRY(ds_parse(module, err));
    if (module->items.n != 1 || module->schedules.n != 1)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "%s is read as a schedule: it must hold one, and nothing else", path);
    *out = module->schedules.at[0];
    return DS_OK;
}

static ds_status find_named(ds_unit *unit, const char *name, const ds_schedule **out,
                            ds_error *err) {
    const ds_module *root = unit->modules.n ? unit->modules.at[0] : NULL;
    *out = root ? ds_find_schedule(root, ds_intern(&unit->strings, name)) : NULL;
    if (*out) return DS_OK;
    DS_VEC(const char *) names = {0};
    for (uint32_t i = 0; root && i < root->schedules.n; i++)
        DS_HPUSH(&names, root->schedules.at[i]->name);
    const char *near = ds_suggest(name, names.at, names.n);
    ds_error_set(err, DS_ERR_NAME, DS_NOWHERE, "there is no schedule @%s here%s%s%s", name,
                 near ? "; did you mean @" : "", near ? near : "", near ? "?" : "");
    free(names.at);
    return DS_ERR_NAME;
}

static ds_status check_written(const ds_schedule *schedule, const ds_schedule_options *options,
                               ds_error *err) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_schedule_index index;
    ds_status status = ds_schedule_check(schedule, &arena, &index, err);
    ds_arena_deinit(&arena);
    DS_TRY(status);
    if (options->stages && index.n_ranks != options->stages)
        return ds_error_set(err, DS_ERR_VALUE, schedule->loc,
                            "@%s has %u ranks, but the pipeline has %lld stages", schedule->name,
                            index.n_ranks, (long long)options->stages);
    if (options->microbatches && index.n_microbatches != options->microbatches)
        return ds_error_set(err, DS_ERR_VALUE, schedule->loc,
                            "@%s has %u microbatches, but the step has %lld", schedule->name,
                            index.n_microbatches, (long long)options->microbatches);
    return DS_OK;
}

ds_status ds_schedule_make(ds_unit *unit, const ds_schedule_options *options,
                           const ds_schedule **out, ds_error *err) {
    *out = NULL;
    const char *name = options->name;
    bool is_file = strncmp(name, "file:", 5) == 0;
    if (!is_file && name[0] != '@') return generate(unit, options, out, err);
    const ds_schedule *found = NULL;
    DS_TRY(is_file ? read_file(unit, name + 5, &found, err)
                   : find_named(unit, name + 1, &found, err));
    DS_TRY(check_written(found, options, err));
    *out = found;
    return DS_OK;
}
