/* The sweep block: dimensions and their domains, conditions, objectives.
 *
 *     sweep {
 *       dp in divisors(world), tp in powers_of_two(1, 8)
 *       schedule in ["1f1b", "gpipe"]
 *       where dp * tp == world
 *       where peak_memory <= 30 GiB
 *       minimize step_time subject to fits
 *     }
 *
 * Its expressions see more names than others do: the dimensions above, what is derived of a
 * candidate (ir/strategy/metrics.def), the knobs of `strategy` and `train`. All of them are kept as
 * indices by name, and the search gives them values. In a list a knob's name is a word, as in the
 * scenario: `offload in [none, optimizer]`. */
#include "ir/lang/lang.h"
#include "ir/lang/parse.h"
#include "ir/strategy/metrics.h"
#include "ir/strategy/sweep.h"

#include <string.h>

typedef DS_VEC(ds_sweep_entry) entries;

/* ---- names ---- */

/* "strategy.zero" is `zero` in expressions. */
static const char *bare_name(ds_parser *p, const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? ds_intern(&p->unit->strings, dot + 1) : name;
}

static void push_name(ds_parser *p, const char *name) {
    const char *interned = ds_intern(&p->unit->strings, name);
    if (!ds_parser_has_index(p, interned)) DS_HPUSH(&p->indices, interned);
}

static void push_dims(ds_parser *p, const entries *all) {
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].kind == DS_SWEEP_DIM) push_name(p, bare_name(p, all->at[i].name));
    push_name(p, "world");
}

static void push_all(ds_parser *p, const entries *all) {
    push_dims(p, all);
    for (int i = 0; i < DS_METRIC_COUNT; i++)
        if (ds_metric_at((ds_metric_id)i)->sweep)
            push_name(p, ds_metric_at((ds_metric_id)i)->sweep);
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++)
        if (ds_sweep_sees_knob(&knobs[i])) push_name(p, knobs[i].name);
}

static ds_expr parse_expr(ds_parser *p, const entries *all) {
    uint32_t mark = p->indices.n;
    push_all(p, all);
    ds_expr e = ds_parse_expr(p);
    ds_parser_pop_indices(p, mark);
    return e;
}

/* ---- domains ---- */

static void parse_call(ds_parser *p, const entries *all, ds_sweep_entry *entry, bool two) {
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LPAREN, "after the domain's name");
    entry->a = parse_expr(p, all);
    if (two) {
        ds_parser_expect(p, DS_TOK_COMMA, "between the least and the greatest");
        entry->b = parse_expr(p, all);
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "to end the domain");
}

static void parse_range(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    entry->a = parse_expr(p, all);
    ds_parser_expect(p, DS_TOK_DOTDOT, "of the domain");
    entry->closed = ds_parser_accept(p, DS_TOK_ASSIGN);
    entry->b = parse_expr(p, all);
    if (ds_parser_accept_word(p, "step")) entry->step = parse_expr(p, all);
}

static void parse_list(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    uint32_t mark = p->indices.n;
    push_dims(p, all);
    entry->list.loc = p->tok.loc;
    ds_parse_list(p, &entry->list);
    ds_parser_pop_indices(p, mark);
    if (!p->status && !entry->list.n_items)
        ds_parser_fail(p, DS_ERR_VALUE, entry->list.loc, "'%s' has no values to take", entry->name);
}

static void parse_domain(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    bool call = ds_parser_peek(p, 1)->kind == DS_TOK_LPAREN;
    if (ds_parser_at(p, DS_TOK_LBRACKET)) {
        entry->domain = DS_DOMAIN_LIST;
        parse_list(p, all, entry);
    } else if (call && ds_parser_at_word(p, "divisors")) {
        entry->domain = DS_DOMAIN_DIVISORS;
        parse_call(p, all, entry, false);
    } else if (call && ds_parser_at_word(p, "powers_of_two")) {
        entry->domain = DS_DOMAIN_POWERS;
        parse_call(p, all, entry, true);
    } else {
        entry->domain = DS_DOMAIN_RANGE;
        parse_range(p, all, entry);
    }
}

/* dp, strategy.zero, gpt.layers */
static void parse_dim(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    ds_buf name = {0};
    ds_token first = ds_parser_expect(p, DS_TOK_NAME, "of a dimension");
    ds_buf_put(&name, first.name ? first.name : "");
    while (ds_parser_accept(p, DS_TOK_DOT)) {
        ds_token next = ds_parser_expect(p, DS_TOK_NAME, "after the dot");
        ds_buf_printf(&name, ".%s", next.name ? next.name : "");
    }
    entry->name = ds_intern(&p->unit->strings, name.text);
    ds_buf_deinit(&name);
    ds_parser_expect_word(p, "in", "between the dimension and its domain");
    parse_domain(p, all, entry);
}

/* ---- entries ---- */

static void parse_unit(ds_parser *p, ds_sweep_entry *entry) {
    bool goes_on = ds_parser_at_word(p, "where") || ds_parser_at_word(p, "subject") ||
                   ds_parser_at_word(p, "minimize") || ds_parser_at_word(p, "maximize");
    if (!goes_on) entry->unit = ds_parse_unit(p);
    ds_expr_kind kind = ds_expr_at(p->exprs, entry->a)->kind;
    bool compares = kind >= DS_EXPR_EQ && kind <= DS_EXPR_GE;
    if (!p->status && entry->unit != DS_UNIT_NONE && !compares)
        ds_parser_fail(p, DS_ERR_TYPE, entry->loc,
                       "a unit ends a comparison, as in peak_memory <= 30 GiB");
}

static void parse_condition(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    entry->a = parse_expr(p, all);
    parse_unit(p, entry);
}

/* memory_first = on */
static void parse_option(ds_parser *p, ds_sweep_entry *entry) {
    entry->kind = DS_SWEEP_OPTION;
    entry->name = ds_parser_expect(p, DS_TOK_NAME, "of an option").name;
    ds_parser_expect(p, DS_TOK_ASSIGN, "after the option's name");
    entry->on = ds_parser_accept_word(p, "on");
    if (!entry->on) ds_parser_expect_word(p, "off", "(or `on`): whether it is so");
}

static void parse_entry(ds_parser *p, const entries *all, ds_sweep_entry *entry) {
    static const struct {
        const char *word;
        ds_sweep_kind kind;
    } words[] = {{"where", DS_SWEEP_WHERE},
                 {"minimize", DS_SWEEP_MINIMIZE},
                 {"maximize", DS_SWEEP_MAXIMIZE},
                 {"subject", DS_SWEEP_SUBJECT},
                 {"price", DS_SWEEP_PRICE}};
    entry->kind = DS_SWEEP_DIM;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ds_parser_at_word(p, words[i].word)) entry->kind = words[i].kind;
    if (entry->kind == DS_SWEEP_DIM && ds_parser_peek(p, 1)->kind == DS_TOK_ASSIGN &&
        ds_parser_peek(p, 2)->kind == DS_TOK_NAME) {
        parse_option(p, entry);
        return;
    }
    if (entry->kind == DS_SWEEP_DIM) {
        parse_dim(p, all, entry);
        return;
    }
    ds_parser_advance(p);
    if (entry->kind == DS_SWEEP_SUBJECT) ds_parser_expect_word(p, "to", "after `subject`");
    if (entry->kind == DS_SWEEP_MINIMIZE || entry->kind == DS_SWEEP_MAXIMIZE)
        entry->name = ds_parser_expect(p, DS_TOK_NAME, "of an objective").name;
    else if (entry->kind == DS_SWEEP_PRICE)
        entry->a = parse_expr(p, all);
    else
        parse_condition(p, all, entry);
}

static bool needs_no_comma(const ds_parser *p) {
    return p->tok.starts_line || ds_parser_at_word(p, "where") || ds_parser_at_word(p, "subject");
}

void ds_parse_sweep(ds_parser *p) {
    ds_sweep sweep = {0};
    entries all = {0};
    ds_parser_begin(p, &sweep.trivia, false);
    sweep.loc = p->tok.loc;
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LBRACE, "before the sweep's dimensions");
    ds_parser_opening(p, &sweep.trivia);
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        ds_sweep_entry entry = {0};
        ds_parser_begin(p, &entry.trivia, all.n == 0);
        entry.loc = p->tok.loc;
        if (all.n == DS_MAX_SWEEP_ENTRIES)
            ds_parser_fail(p, DS_ERR_LIMIT, entry.loc, "a sweep has at most %d entries",
                           DS_MAX_SWEEP_ENTRIES);
        parse_entry(p, &all, &entry);
        bool comma = ds_parser_accept(p, DS_TOK_COMMA);
        ds_parser_end(p, &entry.trivia);
        DS_PUSH(p->arena, &all, entry);
        if (!comma && ds_parser_more(p, DS_TOK_RBRACE) && !needs_no_comma(p))
            ds_parser_expected(p, "',' or a new line before the next entry");
    }
    ds_parser_dangling(p, &sweep.dangling, all.n == 0);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the sweep's entries");
    ds_parser_end(p, &sweep.trivia);
    sweep.entries = all.at;
    sweep.n_entries = all.n;
    DS_PUSH(p->arena, &p->module->sweeps, sweep);
    DS_PUSH(p->arena, &p->module->items, ((ds_item){DS_ITEM_SWEEP, p->module->sweeps.n - 1}));
}

/* ---- a line of the command line ---- */

static bool is_objective(const ds_sweep_entry *entry) {
    return entry->kind == DS_SWEEP_MINIMIZE || entry->kind == DS_SWEEP_MAXIMIZE;
}

static bool is_of_command_line(const ds_sweep_entry *entry) {
    return strncmp(entry->loc.file, "--", 2) == 0;
}

/* Does the new line take the place of the old entry? */
static bool replaces(ds_unit *unit, const ds_sweep_entry *fresh, const ds_sweep_entry *old) {
    ds_sweep_target a, b;
    if (is_objective(fresh)) return is_objective(old) && !is_of_command_line(old);
    if (fresh->kind != DS_SWEEP_DIM || old->kind != DS_SWEEP_DIM) return false;
    if (!ds_sweep_find(unit, fresh->name, &a) || !ds_sweep_find(unit, old->name, &b)) return false;
    return a.module == b.module && a.param == b.param && a.knob == b.knob;
}

/* The entries with the new one in the first place that it takes, or last. */
static void put_line(ds_unit *unit, ds_sweep *sweep, const ds_sweep_entry *fresh) {
    entries all = {0};
    bool placed = false;
    for (uint32_t i = 0; i < sweep->n_entries; i++) {
        bool gone = replaces(unit, fresh, &sweep->entries[i]);
        if (gone && placed) continue;
        DS_PUSH(&unit->arena, &all, gone ? *fresh : sweep->entries[i]);
        placed = placed || gone;
    }
    if (!placed) DS_PUSH(&unit->arena, &all, *fresh);
    sweep->entries = all.at;
    sweep->n_entries = all.n;
}

static void parse_line(ds_parser *p) {
    ds_sweep_entry *out = p->result;
    const ds_sweep *sweep = p->module->sweeps.n ? &p->module->sweeps.at[0] : NULL;
    entries all = {.at = sweep ? sweep->entries : NULL, .n = sweep ? sweep->n_entries : 0};
    out->loc = p->tok.loc;
    parse_entry(p, &all, out);
    if (!ds_parser_at(p, DS_TOK_EOF)) ds_parser_expected(p, "an operator, or no more");
}

ds_status ds_parse_sweep_line(ds_module *module, const char *source, const char *text,
                              ds_error *err) {
    ds_sweep_entry entry = {0};
    DS_TRY(ds_parse_words(module, source, text, parse_line, &entry, err));
    if (!module->sweeps.n) {
        DS_PUSH(&module->unit->arena, &module->sweeps, (ds_sweep){.loc = entry.loc});
        ds_item item = {DS_ITEM_SWEEP, 0};
        DS_PUSH(&module->unit->arena, &module->items, item);
    }
    ds_sweep *sweep = &module->sweeps.at[0];
    if (sweep->n_entries == DS_MAX_SWEEP_ENTRIES)
        return ds_error_set(err, DS_ERR_LIMIT, entry.loc, "a sweep has at most %d entries",
                            DS_MAX_SWEEP_ENTRIES);
    put_line(module->unit, sweep, &entry);
    return DS_OK;
}

/* ---- a condition alone ---- */

typedef struct condition_names {
    const char *const *at;
    uint32_t n;
    ds_sweep_entry entry;
} condition_names;

static void parse_named_condition(ds_parser *p) {
    condition_names *c = p->result;
    c->entry = (ds_sweep_entry){.kind = DS_SWEEP_WHERE, .loc = p->tok.loc};
    for (uint32_t i = 0; i < c->n; i++) push_name(p, c->at[i]);
    c->entry.a = ds_parse_expr(p);
    if (!ds_parser_at(p, DS_TOK_EOF)) parse_unit(p, &c->entry);
    if (!ds_parser_at(p, DS_TOK_EOF)) ds_parser_expected(p, "an operator, a unit, or no more");
}

ds_status ds_parse_condition(ds_module *module, ds_parse_names names, const char *source,
                             const char *text, ds_sweep_entry *out, ds_error *err) {
    condition_names c = {.at = names.at, .n = names.n};
    DS_TRY(ds_parse_words(module, source, text, parse_named_condition, &c, err));
    *out = c.entry;
    return DS_OK;
}
