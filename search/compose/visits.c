/* Which executions visit a class, in order of time.
 *
 * They are listed rank by rank, each in the order of its schedule, so that they are nearly sorted:
 * blocks are sorted by insertion and merged where they are not in order already. One class is
 * looked at after the other, so that what is found out for its visits can be forgotten again. */
#include "search/compose/internal.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

static bool is_after(const ds_visit *a, const ds_visit *b) {
    return a->start_ps != b->start_ps ? a->start_ps > b->start_ps : a->end_ps > b->end_ps;
}

static void insert(ds_visit *at, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        if (!is_after(&at[i - 1], &at[i])) continue;
        ds_visit v = at[i];
        uint32_t k = i;
        for (; k && is_after(&at[k - 1], &v); k--) at[k] = at[k - 1];
        at[k] = v;
    }
}

static void merge_runs(ds_visit *at, uint32_t middle, uint32_t n, ds_visit *room) {
    if (!is_after(&at[middle - 1], &at[middle])) return;
    uint32_t begin = 0; /* what stays where it is */
    while (!is_after(&at[begin], &at[middle])) begin++;
    memcpy(room, at + begin, (middle - begin) * sizeof *room);
    uint32_t a = 0, n_a = middle - begin, b = middle, to = begin;
    while (a < n_a && b < n) at[to++] = is_after(&room[a], &at[b]) ? at[b++] : room[a++];
    memcpy(at + to, room + a, (n_a - a) * sizeof *room);
}

void ds_compose__sort(ds_visit *at, uint32_t n, ds_visit *room) {
    for (uint32_t i = 0; i < n; i += BLOCK) insert(at + i, n - i < BLOCK ? n - i : BLOCK);
    for (uint32_t len = BLOCK; len < n; len *= 2)
        for (uint32_t i = 0; i + len < n; i += 2 * len)
            merge_runs(at + i, len, n - i < 2 * len ? n - i : 2 * len, room);
}

void ds_compose__visits_init(const ds_timeline *t, ds_visits *out) {
    const ds_sibling *s = t->s;
    uint32_t n_classes = s->plan->n_classes, most = 0;
    uint32_t *first = ds_xcalloc((size_t)n_classes + 2, sizeof *first);
    for (uint32_t i = 0; i < t->n_execs; i++) {
        const ds_part *part = &s->parts[t->execs[i].part];
        if (t->execs[i].is_cut) continue;
        for (uint32_t k = 0; k < part->classes.n; k++) first[part->classes.at[k] + 2]++;
    }
    for (uint32_t c = 2; c < n_classes + 2; c++) {
        if (first[c] > most) most = first[c];
        first[c] += first[c - 1];
    }
    ds_visitor *from = ds_xmalloc(((size_t)first[n_classes + 1] + 1) * sizeof *from);
    for (uint32_t i = 0; i < t->n_execs; i++) { /* first[c + 1] moves on to where c + 1 begins */
        const ds_part *part = &s->parts[t->execs[i].part];
        if (t->execs[i].is_cut) continue;
        for (uint32_t k = 0; k < part->classes.n; k++)
            from[first[part->classes.at[k] + 1]++] = (ds_visitor){i, k};
    }
    *out = (ds_visits){from, first, ds_xmalloc(((size_t)most * 2 + 1) * sizeof *out->at), most};
}

uint32_t ds_compose__visits(const ds_timeline *t, const ds_visits *visits, uint32_t cls,
                            ds_visit_fn *look, void *context) {
    uint32_t n = 0;
    for (uint32_t i = visits->first[cls]; i < visits->first[cls + 1]; i++)
        if (look(context, &t->execs[visits->from[i].exec], visits->from[i].k, &visits->at[n])) n++;
    ds_compose__sort(visits->at, n, visits->at + visits->most);
    return n;
}

void ds_compose__visits_deinit(ds_visits *visits) {
    free(visits->from);
    free(visits->first);
    free(visits->at);
}
