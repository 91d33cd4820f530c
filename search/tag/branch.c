/* The search of branch.h. Improvement is the same dive with most groups closed. */
#include "search/tag/branch.h"

#include "ir/base/map.h"
#include "ir/base/rng.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPEN UINT32_MAX
/* A deployment that does not fit counts as so much and the missing bytes of its fullest GPU, so that
 * improvement finds the way to one that does. No makespan is as long. */
#define UNFIT (INT64_C(1) << 62)

typedef struct child {
    int64_t bound_us;
    uint32_t action;
} child;

typedef struct search {
    const ds_tag_branching *what;
    uint32_t n_groups, n_actions;
    uint64_t n_steps; /* at most, of this phase */
    ds_arena arena;
    int64_t *floors;
    ds_map known;            /* hash of a deployment → its microseconds */
    uint32_t *choice, *best; /* [group]: action, or OPEN */
    ds_tag_action *at;       /* [group]: of `choice` */
    int64_t us, lower_us;    /* of `best`; of what the dive has met */
    int64_t *bounds;         /* [open groups][group][action] */
    child *children;         /* [open groups][action] */
    ds_tag_branched *out;
    ds_buf *lines; /* NULL: no certificate */
} search;

/* ---- steps ---- */

static void decide(search *s, uint32_t group, uint32_t action) {
    s->choice[group] = action;
    s->at[group] = action == OPEN ? (ds_tag_action){0} : s->what->actions[action];
}

static int64_t missing_bytes(const ds_tag_cluster *c, const int64_t *peak_bytes) {
    int64_t most = 0;
    for (uint32_t m = 0, gpu = 0; m < c->n_machines; m++)
        for (uint32_t i = 0; i < c->machine[m].n_gpus; i++, gpu++)
            if (peak_bytes[gpu] - c->machine[m].memory_bytes > most)
                most = peak_bytes[gpu] - c->machine[m].memory_bytes;
    return most;
}

/* What is said of it: INT64_MAX if the deployment does not fit. */
static int64_t told(int64_t us) {
    return us >= UNFIT ? INT64_MAX : us;
}

/* INT64_MAX: the deployment's collectives wait for each other. */
static int64_t simulate(search *s) {
    uint64_t key = ds_hash_bytes(s->choice, s->n_groups * sizeof *s->choice);
    uint64_t *known = ds_map_find(&s->known, key);
    if (known) return (int64_t)*known;
    ds_arena arena;
    ds_tag_outcome out;
    ds_arena_init(&arena);
    int64_t us = INT64_MAX;
    if (ds_tag_simulate(s->what->problem, s->at, &arena, &out, NULL) == DS_OK)
        us = out.fits ? out.makespan_us
                      : UNFIT + missing_bytes(&s->what->problem->cluster, out.peak_bytes);
    ds_arena_deinit(&arena);
    ds_map_put(&s->known, key, (uint64_t)us);
    s->out->n_simulations++;
    return us;
}

static int64_t bound(search *s) {
    ds_arena arena;
    int64_t us = 0;
    ds_arena_init(&arena);
    if (ds_tag_bound(s->what->problem, s->at, s->floors, &arena, &us, NULL)) us = 0;
    ds_arena_deinit(&arena);
    s->out->n_bounds++;
    return us;
}

static bool is_over(const search *s) {
    return s->out->n_simulations + s->out->n_bounds >= s->n_steps;
}

static void lower(search *s, int64_t us) {
    if (us < s->lower_us) s->lower_us = us;
}

static void put_us(ds_buf *out, int64_t us) {
    if (us >= UNFIT)
        ds_buf_put(out, "\t-");
    else
        ds_buf_printf(out, "\t%" PRId64, us);
}

static void put_line(search *s, uint32_t action, const char *kind, int64_t value) {
    if (!s->lines) return;
    ds_buf_printf(s->lines, "%u\t%s", action, kind);
    put_us(s->lines, value);
    ds_buf_putc(s->lines, '\n');
}

static int64_t settle(search *s) {
    int64_t us = simulate(s);
    lower(s, us);
    if (us >= s->us) return us;
    s->us = us;
    memcpy(s->best, s->choice, s->n_groups * sizeof *s->best);
    return us;
}

/* ---- a node ---- */

static int by_bound(const void *a, const void *b) {
    const child *x = a, *y = b;
    if (x->bound_us != y->bound_us) return x->bound_us < y->bound_us ? -1 : 1;
    return x->action < y->action ? -1 : x->action > y->action;
}

/* The bounds of a group's actions, from the bounds of the node above; the least of them. */
static int64_t find_bounds(search *s, uint32_t group, const int64_t *above, int64_t *now) {
    int64_t least = INT64_MAX;
    for (uint32_t a = 0; a < s->n_actions; a++) {
        now[a] = above[a];
        if (now[a] < s->us && !is_over(s)) {
            decide(s, group, a);
            int64_t us = bound(s);
            if (us > now[a]) now[a] = us;
        }
        if (now[a] < least) least = now[a];
    }
    decide(s, group, OPEN);
    return least;
}

/* The open group whose least bound is the greatest; OPEN: no group is open. */
static uint32_t choose_group(search *s, const int64_t *above, int64_t *now) {
    int64_t most = -1;
    uint32_t chosen = OPEN;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        if (s->choice[g] != OPEN) continue;
        size_t row = (size_t)g * s->n_actions;
        int64_t least = find_bounds(s, g, above + row, now + row);
        if (least <= most) continue;
        most = least;
        chosen = g;
    }
    return chosen;
}

/* `action`: of the group above, for the certificate; above: [group][action]. */
static void dive(search *s, uint32_t action, uint32_t n_open, const int64_t *above) {
    if (n_open == 0) {
        put_line(s, action, "run", settle(s));
        return;
    }
    int64_t *now = s->bounds + (size_t)n_open * s->n_groups * s->n_actions;
    child *children = s->children + (size_t)n_open * s->n_actions;
    uint32_t group = choose_group(s, above, now);
    put_line(s, action, "branch", group);
    for (uint32_t a = 0; a < s->n_actions; a++)
        children[a] = (child){now[(size_t)group * s->n_actions + a], a};
    qsort(children, s->n_actions, sizeof *children, by_bound);
    for (uint32_t i = 0; i < s->n_actions; i++) {
        const child *c = &children[i];
        if (c->bound_us >= s->us || is_over(s)) {
            lower(s, c->bound_us);
            put_line(s, c->action, "bound", c->bound_us);
            continue;
        }
        decide(s, group, c->action);
        dive(s, c->action, n_open - 1, now);
    }
    decide(s, group, OPEN);
}

/* The best choice for these groups beside the others of the best deployment. */
static void solve(search *s, const uint32_t *set, uint32_t n) {
    for (uint32_t g = 0; g < s->n_groups; g++) decide(s, g, s->best[g]);
    for (uint32_t i = 0; i < n; i++) decide(s, set[i], OPEN);
    s->lower_us = INT64_MAX;
    dive(s, 0, n, s->bounds); /* the first row stays zero */
}

/* ---- improvement ---- */

/* The groups first … first + n - 1 take one action. */
static void try_run(search *s, uint32_t first, uint32_t n) {
    for (uint32_t a = 0; a < s->n_actions && !is_over(s); a++) {
        for (uint32_t g = 0; g < s->n_groups; g++) decide(s, g, g - first < n ? a : s->best[g]);
        if (bound(s) < s->us) settle(s);
    }
}

static void improve_runs(search *s) {
    for (int64_t before = -1; before != s->us;) {
        before = s->us;
        for (uint32_t n = 1; n <= s->n_groups; n++)
            for (uint32_t first = 0; first + n <= s->n_groups; first++) try_run(s, first, n);
    }
}

/* The next set of k groups in lexical order; false: set[k] was the last. */
static bool next_set(const search *s, uint32_t *set, uint32_t k) {
    for (uint32_t i = k; i-- > 0;) {
        if (set[i] == s->n_groups - k + i) continue;
        set[i]++;
        for (uint32_t j = i + 1; j < k; j++) set[j] = set[j - 1] + 1;
        return true;
    }
    return false;
}

/* Sets of up to `most` groups; after a change for the better, single groups again. */
static void descend(search *s, uint32_t most) {
    uint32_t *set = ds_xcalloc(s->n_groups, sizeof *set);
    for (uint32_t k = 1; k <= most && k <= s->n_groups && !is_over(s);) {
        int64_t before = s->us;
        if (k == 1) improve_runs(s);
        for (uint32_t i = 0; i < k; i++) set[i] = i;
        do solve(s, set, k);
        while ((k == 1 || s->us == before) && !is_over(s) && next_set(s, set, k));
        k = s->us < before ? 1 : k + 1;
    }
    free(set);
}

/* Away from the best by up to half of the groups. */
static void start_near(search *s, const uint32_t *best, ds_rng *rng) {
    memcpy(s->best, best, s->n_groups * sizeof *best);
    for (uint32_t k = 0; k < s->n_groups / 2 + 1; k++)
        s->best[ds_rng_below(rng, s->n_groups)] = (uint32_t)ds_rng_below(rng, s->n_actions);
    for (uint32_t g = 0; g < s->n_groups; g++) decide(s, g, s->best[g]);
    s->us = simulate(s);
}

/* ---- from and to deployments ---- */

static void init(search *s, const ds_tag_branching *what, ds_tag_branched *out) {
    const ds_tag_graph *g = &what->problem->graph;
    size_t n = g->n_groups + 1, row = (size_t)g->n_groups * what->n_actions;
    *s = (search){.what = what,
                  .n_groups = g->n_groups,
                  .n_actions = what->n_actions,
                  .n_steps = what->n_steps,
                  .us = INT64_MAX,
                  .out = out};
    *out = (ds_tag_branched){0};
    ds_arena_init(&s->arena);
    ds_map_init(&s->known);
    s->floors = DS_NEW_N(&s->arena, int64_t, g->n_ops);
    ds_tag_floors(what->problem, what->actions, what->n_actions, s->floors);
    s->choice = DS_NEW_N(&s->arena, uint32_t, n);
    s->best = DS_NEW_N(&s->arena, uint32_t, n);
    s->at = DS_NEW_N(&s->arena, ds_tag_action, n);
    s->bounds = DS_NEW_N(&s->arena, int64_t, n * row);
    s->children = DS_NEW_N(&s->arena, child, n * what->n_actions);
}

/* From a deployment on. An action that is none of the list: the first one. */
static void begin(search *s, const ds_tag_action *action) {
    for (uint32_t g = 0; g < s->n_groups; g++) {
        for (s->best[g] = s->n_actions - 1; s->best[g] > 0; s->best[g]--) {
            const ds_tag_action *a = &s->what->actions[s->best[g]];
            if (a->gpus == action[g].gpus && a->way == action[g].way) break;
        }
        decide(s, g, s->best[g]);
    }
    s->us = simulate(s);
}

static void deinit(search *s) {
    ds_map_deinit(&s->known);
    ds_arena_deinit(&s->arena);
}

static void finish(search *s, ds_tag_action *action) {
    for (uint32_t g = 0; g < s->n_groups; g++) action[g] = s->what->actions[s->best[g]];
    s->out->us = told(s->us);
    deinit(s);
}

void ds_tag_improve(const ds_tag_branching *what, ds_tag_action *action, ds_tag_branched *out) {
    search s;
    init(&s, what, out);
    begin(&s, action);
    ds_rng rng = {ds_rng_at(what->seed, 0, 0, 0)};
    uint32_t *best = DS_NEW_N(&s.arena, uint32_t, s.n_groups + 1);
    int64_t best_us = INT64_MAX;
    s.n_steps = what->n_steps / 2;
    for (;;) {
        descend(&s, 2);
        if (s.us <= best_us) memcpy(best, s.best, s.n_groups * sizeof *best);
        if (s.us < best_us) best_us = s.us;
        if (is_over(&s)) break;
        start_near(&s, best, &rng);
    }
    memcpy(s.best, best, s.n_groups * sizeof *best);
    s.us = best_us;
    s.n_steps = what->n_steps;
    descend(&s, s.n_groups);
    finish(&s, action);
}

void ds_tag_prove(const ds_tag_branching *what, ds_tag_action *action, ds_buf *certificate,
                  ds_tag_branched *out) {
    search s;
    ds_buf lines = {0};
    init(&s, what, out);
    begin(&s, action);
    if (certificate) s.lines = &lines;
    uint32_t *set = DS_NEW_N(&s.arena, uint32_t, s.n_groups + 1);
    for (uint32_t i = 0; i < s.n_groups; i++) set[i] = i;
    solve(&s, set, s.n_groups);
    out->lower_us = told(s.lower_us < s.us ? s.lower_us : s.us);
    if (certificate) {
        ds_buf_put(certificate, "incumbent");
        put_us(certificate, s.us);
        for (uint32_t g = 0; g < s.n_groups && s.us < UNFIT; g++)
            ds_buf_printf(certificate, "\t%u", s.best[g]);
        ds_buf_put(certificate, "\nlower");
        put_us(certificate, out->lower_us);
        ds_buf_printf(certificate, "\n%send\n", lines.text);
    }
    ds_buf_deinit(&lines);
    finish(&s, action);
}

/* ---- certificates ---- */

typedef struct checker {
    search s;
    const char *at;
    uint64_t line;
    ds_error *err;
} checker;

static ds_status demand(checker *c, bool holds, const char *what) {
    if (holds) return DS_OK;
    return ds_error_set(c->err, DS_ERR_DATA, DS_NOWHERE, "certificate, line %" PRIu64 ": %s",
                        c->line, what);
}

/* A number up to `most`, which - is if it is INT64_MAX; then `end`. */
static bool read_cell(checker *c, int64_t most, char end, int64_t *out) {
    const char *at = c->at;
    *out = 0;
    if (*at == '-' && most == INT64_MAX) {
        *out = most;
        at++;
    }
    while (*at >= '0' && *at <= '9' && *out <= most / 10 && 10 * *out <= most - (*at - '0'))
        *out = 10 * *out + (*at++ - '0');
    bool is_number = at != c->at && *at == end;
    c->at = at + is_number;
    return is_number;
}

static bool read_word(checker *c, const char *word) {
    size_t n = strlen(word);
    bool is_there = strncmp(c->at, word, n) == 0;
    c->at += is_there ? n : 0;
    return is_there;
}

static ds_status check_node(checker *c, uint32_t n_open);

/* A line for each action of the group, in any order. */
static ds_status check_branch(checker *c, uint32_t group, uint32_t n_open) {
    search *s = &c->s;
    bool *seen = ds_xcalloc(s->n_actions, sizeof *seen);
    ds_status status = DS_OK;
    for (uint32_t i = 0; i < s->n_actions && status == DS_OK; i++) {
        int64_t a;
        c->line++;
        bool is_new = read_cell(c, s->n_actions - 1, '\t', &a) && !seen[a];
        status = demand(c, is_new, "an action of the group that has no line yet should stand here");
        if (status != DS_OK) break;
        seen[a] = true;
        decide(s, group, (uint32_t)a);
        status = check_node(c, n_open - 1);
    }
    decide(s, group, OPEN);
    free(seen);
    return status;
}

static ds_status check_node(checker *c, uint32_t n_open) {
    search *s = &c->s;
    int64_t value;
    bool is_branch = read_word(c, "branch\t"), is_bound = !is_branch && read_word(c, "bound\t");
    bool is_run = !is_branch && !is_bound && read_word(c, "run\t");
    DS_TRY(demand(c, (is_branch || is_bound || is_run) && read_cell(c, INT64_MAX, '\n', &value),
                  "a node is branch, bound or run, with a number"));
    if (is_branch) {
        bool is_open = value < s->n_groups && s->choice[value] == OPEN;
        DS_TRY(demand(c, is_open, "a node branches on a group without an action"));
        return check_branch(c, (uint32_t)value, n_open);
    }
    DS_TRY(demand(c, value >= s->lower_us, "the value is less than the lower bound of all"));
    if (is_bound) return demand(c, value <= bound(s), "the bound of these deployments is less");
    DS_TRY(demand(c, n_open == 0, "only a deployment of all groups can be run"));
    return demand(c, value == told(simulate(s)), "the deployment takes another time");
}

static ds_status check_head(checker *c) {
    search *s = &c->s;
    bool is_there = read_word(c, "incumbent\t");
    bool is_none = is_there && read_word(c, "-\n");
    s->us = INT64_MAX;
    if (!is_none) {
        is_there = is_there && read_cell(c, INT64_MAX, '\t', &s->us);
        for (uint32_t g = 0; g < s->n_groups && is_there; g++) {
            int64_t a = 0;
            is_there = read_cell(c, s->n_actions - 1, g + 1 < s->n_groups ? '\t' : '\n', &a);
            s->best[g] = (uint32_t)a;
            if (is_there) decide(s, g, s->best[g]);
        }
        DS_TRY(demand(c, is_there, "the incumbent should stand here, with an action a group"));
        DS_TRY(demand(c, s->us == told(simulate(s)), "the incumbent takes another time"));
    }
    c->line++;
    is_there = read_word(c, "lower\t") && read_cell(c, INT64_MAX, '\n', &s->lower_us);
    return demand(c, is_there, "the lower bound should stand here");
}

static ds_status check_lines(checker *c) {
    DS_TRY(check_head(c));
    for (uint32_t g = 0; g < c->s.n_groups; g++) decide(&c->s, g, OPEN);
    c->line++;
    DS_TRY(demand(c, read_word(c, "0\t"), "the first node should stand here"));
    DS_TRY(check_node(c, c->s.n_groups));
    c->line++;
    return demand(c, strcmp(c->at, "end\n") == 0, "the end should stand here");
}

ds_status ds_tag_certify(const ds_tag_branching *what, const char *text, uint64_t first_line,
                         ds_tag_branched *out, ds_error *err) {
    checker c = {.at = text, .line = first_line, .err = err};
    init(&c.s, what, out);
    ds_status status = check_lines(&c);
    out->us = c.s.us;
    out->lower_us = c.s.lower_us;
    deinit(&c.s);
    return status;
}
