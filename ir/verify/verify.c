/* The verifier's phases and its reports.
 *
 * Phases go from outside to inside: declarations of every module, recursion, then every function's
 * body, then the scenario. Each phase adds findings to one list, which is sorted into source order
 * at the end, so that the order of the phases never shows. No cause is reported twice: a value
 * without a type is silent, and the walk with numbers, which repeats loops, reports a place in the
 * source once. */
#include "ir/verify/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reports ---- */

static bool seen_before(ds_checker *ck, ds_loc loc) {
    if (!ck->binding || !loc.file) return false;
    uint64_t key =
        ds_hash_mix(ds_hash_mix(ds_hash_bytes(loc.file, strlen(loc.file)), loc.line), loc.col);
    if (ds_map_find(&ck->reported, key)) return true;
    ds_map_put(&ck->reported, key, 1);
    return false;
}

static const char *format_text(ds_checker *ck, const char *format, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    size_t size = n > 0 ? (size_t)n + 1 : 1;
    char *text = ds_arena_alloc(&ck->diags->arena, size);
    vsnprintf(text, size, format, ap);
    return text;
}

void ds_verify__error(ds_checker *ck, ds_status code, ds_loc loc, const char *hint,
                      const char *format, ...) {
    if (seen_before(ck, loc)) return;
    va_list ap;
    va_start(ap, format);
    const char *text = format_text(ck, format, ap);
    va_end(ap);
    ds_diags_add(ck->diags, DS_SEV_ERROR, code, loc, hint, "%s", text);
}

void ds_verify__warn(ds_checker *ck, ds_loc loc, const char *format, ...) {
    if (seen_before(ck, loc)) return;
    va_list ap;
    va_start(ap, format);
    const char *text = format_text(ck, format, ap);
    va_end(ap);
    ds_diags_add(ck->diags, DS_SEV_WARNING, DS_ERR_NAME, loc, NULL, "%s", text);
}

void ds_verify__pass_on(ds_checker *ck, const ds_error *err) {
    if (!seen_before(ck, ds_error_loc(err))) ds_diags_add_error(ck->diags, err);
}

static const char *keep_text(ds_checker *ck, ds_buf *buf) {
    const char *text = ds_arena_strdup(&ck->diags->arena, buf->text ? buf->text : "");
    ds_buf_deinit(buf);
    return text;
}

const char *ds_verify__type_text(ds_checker *ck, const ds_type *type) {
    ds_buf buf = {0};
    ds_type_print(&ck->unit->exprs, type, &buf);
    return keep_text(ck, &buf);
}

const char *ds_verify__place_text(ds_checker *ck, const ds_place *place) {
    ds_buf buf = {0};
    ds_place_print(&ck->unit->exprs, place, &buf);
    return keep_text(ck, &buf);
}

const char *ds_verify__expr_text(ds_checker *ck, ds_expr e) {
    ds_buf buf = {0};
    ds_expr_print(&ck->unit->exprs, e, &buf);
    return keep_text(ck, &buf);
}

const char *ds_verify__hint(ds_checker *ck, const char *sigil, const char *name,
                            const char *const *candidates, uint32_t n) {
    /* Of equally near names, the name with the same first letter is likelier: tpp is tp, not pp. */
    ds_names sorted = {0};
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < n; i++)
            if ((candidates[i][0] == name[0]) == (pass == 0))
                DS_PUSH(&ck->diags->arena, &sorted.all, candidates[i]);
    const char *near = ds_suggest(name, sorted.all.at, n);
    if (!near) return NULL;
    return ds_arena_printf(&ck->diags->arena,
                           *sigil ? "did you mean %s%s?" : "did you mean %s'%s'?", sigil, near);
}

/* ---- source order ---- */

/* The number of a file's module, in order of loading; reports without a place go last. */
static uint32_t module_of(const ds_unit *unit, const char *file) {
    for (uint32_t i = 0; i < unit->modules.n; i++)
        if (file && strcmp(unit->modules.at[i]->path, file) == 0) return i;
    return UINT32_MAX;
}

typedef struct ranked_diag {
    ds_diag diag;
    uint32_t module, order;
} ranked_diag;

static int compare_ranked(const void *pa, const void *pb) {
    const ranked_diag *a = pa, *b = pb;
    if (a->module != b->module) return a->module < b->module ? -1 : 1;
    if (a->diag.loc.line != b->diag.loc.line) return a->diag.loc.line < b->diag.loc.line ? -1 : 1;
    if (a->diag.loc.col != b->diag.loc.col) return a->diag.loc.col < b->diag.loc.col ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Do two reports say the same? Both ends of a link, or both sides of an op, may be wrong in one
 * way. */
static bool is_repeated(const ds_diag *a, const ds_diag *b) {
    return a->loc.line == b->loc.line && a->loc.col == b->loc.col &&
           strcmp(a->message, b->message) == 0 &&
           strcmp(a->loc.file ? a->loc.file : "", b->loc.file ? b->loc.file : "") == 0;
}

static void sort_from(const ds_unit *unit, ds_diags *diags, uint32_t first) {
    uint32_t n = diags->all.n - first;
    if (n < 2) return;
    ranked_diag *ranked = ds_xcalloc(n, sizeof *ranked);
    for (uint32_t i = 0; i < n; i++) {
        ds_diag diag = diags->all.at[first + i];
        ranked[i] = (ranked_diag){diag, module_of(unit, diag.loc.file), i};
    }
    qsort(ranked, n, sizeof *ranked, compare_ranked);
    uint32_t kept = first;
    for (uint32_t i = 0; i < n; i++)
        if (!i || !is_repeated(&ranked[i].diag, &ranked[i - 1].diag))
            diags->all.at[kept++] = ranked[i].diag;
        else if (ranked[i].diag.severity == DS_SEV_ERROR)
            diags->n_errors--;
    diags->all.n = kept;
    free(ranked);
}

static ds_status first_error(const ds_diags *diags, uint32_t first) {
    for (uint32_t i = first; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR) return diags->all.at[i].code;
    return DS_OK;
}

/* ---- phases ---- */

ds_status ds_verify(ds_unit *unit, ds_diags *diags) {
    ds_checker ck = {.unit = unit, .diags = diags};
    uint32_t first = diags->all.n;
    for (uint32_t m = 0; m < unit->modules.n; m++) ds_verify__names(&ck, unit->modules.at[m]);
    ds_verify__calls(&ck);
    for (uint32_t m = 0; m < unit->modules.n; m++) {
        ds_module *module = unit->modules.at[m];
        for (uint32_t i = 0; i < module->topologies.n; i++)
            ds_verify__topology(&ck, module->topologies.at[i]);
        for (uint32_t i = 0; i < module->funcs.n; i++)
            ds_verify__func(&ck, module->funcs.at[i], NULL);
        for (uint32_t i = 0; i < module->programs.n; i++)
            ds_verify__program(&ck, module->programs.at[i]);
        for (uint32_t i = 0; i < module->schedules.n; i++)
            ds_verify__schedule(&ck, module->schedules.at[i]);
        ds_verify__scenario(&ck, module);
        ds_verify__sweep(&ck, module);
        ds_verify__degrades(&ck, module);
    }
    ds_library_items_deinit(&ck.library);
    sort_from(unit, diags, first);
    return first_error(diags, first);
}

ds_status ds_verify_bound(ds_unit *unit, const ds_binding *binding, ds_diags *diags) {
    return ds_verify_bound_within(unit, binding, DS_VERIFY_MAX_TURNS, diags);
}

ds_status ds_verify_bound_within(ds_unit *unit, const ds_binding *binding, uint64_t max_turns,
                                 ds_diags *diags) {
    ds_checker ck = {.unit = unit, .diags = diags, .binding = binding, .max_turns = max_turns};
    uint32_t first = diags->all.n;
    ds_map_init(&ck.reported);
    /* Types that are inferred again at every turn of every loop are kept in a separate arena, freed
     * at the end. */
    ds_arena kept = unit->arena;
    ds_arena_init(&unit->arena);
    ds_verify__bound(&ck);
    ds_arena_deinit(&unit->arena);
    unit->arena = kept;
    ds_map_deinit(&ck.reported);
    ds_library_items_deinit(&ck.library);
    sort_from(unit, diags, first);
    return first_error(diags, first);
}
