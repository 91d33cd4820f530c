/* Groups of operations: read from a strategy, and written into one. */
#include "ir/strategy/group.h"

#include "ir/strategy/internal.h"
#include "ir/strategy/scenario.h"

#include <string.h>

/* ---- reading ---- */

const ds_attr *ds_strategy_groups(ds_unit *unit) {
    const ds_attr *strategy = ds_scenario_find(unit, "", "strategy");
    ds_attr *groups = NULL;
    for (uint32_t i = 0; strategy && i < strategy->n_items; i++) {
        if (!strategy->items[i].labelled) continue;
        if (!groups) {
            groups = DS_NEW(&unit->arena, ds_attr);
            groups->items = DS_NEW_N(&unit->arena, ds_attr, strategy->n_items);
        }
        groups->items[groups->n_items++] = strategy->items[i];
    }
    return groups;
}

ds_status ds_knobs__read_groups(const ds_binding *binding, const ds_knob *knob, void *record,
                                ds_error *err) {
    (void)knob, (void)err;
    ((ds_strategy *)record)->groups = ds_strategy_groups(binding->unit);
    return DS_OK;
}

const char *ds_group_way_word(ds_group_way way) {
    static const char *const words[DS_N_GROUP_WAYS] = {"all_reduce", "duplicate", "split", "ps",
                                                       "sfb"};
    return words[way];
}

static ds_status read_patterns(const ds_binding *binding, const ds_attr *attr, ds_op_group *out,
                               ds_error *err) {
    bool list = attr->kind == DS_ATTR_LIST;
    uint32_t n = list ? attr->n_items : 1;
    out->ops = DS_NEW_N(&binding->unit->arena, const char *, n + 1);
    for (; out->n_ops < n; out->n_ops++)
        DS_TRY(ds_scenario_text_of(binding, list ? &attr->items[out->n_ops] : attr, "group", "ops",
                                   &out->ops[out->n_ops], err));
    return DS_OK;
}

static ds_status read_by(const ds_binding *binding, const ds_attr *attr, ds_op_group *out,
                         ds_error *err) {
    const char *word = NULL;
    DS_TRY(ds_scenario_text_of(binding, attr, "group", "by", &word, err));
    for (uint32_t w = 0; w < DS_N_GROUP_WAYS; w++) {
        out->by = (ds_group_way)w;
        if (strcmp(word, ds_group_way_word(out->by)) == 0) return DS_OK;
    }
    return ds_error_set(err, DS_ERR_VALUE, attr->loc,
                        "group \"%s\": by cannot be %s; it is one of %s", out->name, word,
                        ds_scenario_knob("group", "by")->choices);
}

/* A key of one way, of two words. */
typedef struct flag {
    const char *key, *words[2];
    ds_group_way way;
} flag;

/* Sets *out if the key is there and has the second word. */
static ds_status read_flag(const ds_binding *binding, const ds_attr *block, const flag *of,
                           const ds_op_group *group, bool *out, ds_error *err) {
    const ds_attr *attr = ds_attr_find(block->items, block->n_items, of->key);
    const char *word = NULL;
    if (!attr) return DS_OK;
    DS_TRY(ds_scenario_text_of(binding, attr, "group", of->key, &word, err));
    *out = strcmp(word, of->words[1]) == 0;
    if (group->by != of->way)
        return ds_error_set(err, DS_ERR_VALUE, attr->loc, "group \"%s\": %s needs by = %s",
                            group->name, of->key, ds_group_way_word(of->way));
    if (*out || strcmp(word, of->words[0]) == 0) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, attr->loc, "group \"%s\": %s = %s: it is %s or %s",
                        group->name, of->key, word, of->words[0], of->words[1]);
}

static ds_status read_shares(const ds_binding *binding, const ds_attr *attr, ds_op_group *out,
                             ds_error *err) {
    out->shares_loc = attr->loc;
    out->shares_by_time = attr->kind != DS_ATTR_LIST;
    if (out->shares_by_time) return DS_OK;
    int64_t *shares = DS_NEW_N(&binding->unit->arena, int64_t, attr->n_items + 1);
    for (uint32_t i = 0; i < attr->n_items; i++)
        DS_TRY(ds_scenario_int_of(binding, &attr->items[i], "group", "shares", &shares[i], err));
    out->shares = shares;
    out->n_shares = attr->n_items;
    return DS_OK;
}

ds_status ds_group_read(const ds_binding *binding, const ds_attr *block, ds_op_group *out,
                        ds_error *err) {
    const ds_attr *ops = ds_attr_find(block->items, block->n_items, "ops");
    const ds_attr *on = ds_attr_find(block->items, block->n_items, "on");
    const ds_attr *by = ds_attr_find(block->items, block->n_items, "by");
    const ds_attr *shares = ds_attr_find(block->items, block->n_items, "shares");
    *out = (ds_op_group){.name = block->name, .loc = block->loc, .on_loc = block->loc};
    if (!*block->name)
        return ds_error_set(err, DS_ERR_VALUE, block->loc,
                            "a group needs a name, as in group \"head\" { … }");
    if (!ops || (ops->kind == DS_ATTR_LIST && !ops->n_items))
        return ds_error_set(err, DS_ERR_VALUE, block->loc,
                            "group \"%s\" names no operations: say `ops = [\"…\"]`", block->name);
    DS_TRY(read_patterns(binding, ops, out, err));
    if (on) {
        out->on = on->place.name;
        out->on_loc = on->loc;
    }
    if (by) DS_TRY(read_by(binding, by, out, err));
    if (shares && !on)
        return ds_error_set(err, DS_ERR_VALUE, shares->loc,
                            "group \"%s\": shares are parts for the devices of a mesh: say `on`; "
                            "the strategy's own replicas have dp_shares",
                            block->name);
    static const flag cost = {"sfb_cost", {"nics", "serial"}, DS_GROUP_SFB};
    static const flag sends = {"ps_sends", {"weights", "gradients"}, DS_GROUP_PS};
    DS_TRY(read_flag(binding, block, &cost, out, &out->serial, err));
    DS_TRY(read_flag(binding, block, &sends, out, &out->sends_sums, err));
    return shares ? read_shares(binding, shares, out, err) : DS_OK;
}

/* ---- writing ---- */

static ds_attr entry(ds_unit *unit, const char *name, ds_attr_kind kind) {
    return (ds_attr){.name = ds_intern(&unit->strings, name), .kind = kind};
}

static ds_attr list(ds_unit *unit, const char *name, uint32_t n) {
    ds_attr attr = entry(unit, name, DS_ATTR_LIST);
    attr.items = DS_NEW_N(&unit->arena, ds_attr, n + 1);
    attr.n_items = n;
    return attr;
}

static ds_attr ops_of(ds_unit *unit, const ds_op_group *group) {
    ds_attr ops = list(unit, "ops", group->n_ops);
    for (uint32_t i = 0; i < group->n_ops; i++)
        ops.items[i] =
            (ds_attr){.kind = DS_ATTR_EXPR,
                      .expr = ds_expr_str(&unit->exprs, ds_intern(&unit->strings, group->ops[i]))};
    return ops;
}

static ds_attr word(ds_unit *unit, const char *name, const char *text) {
    ds_attr attr = entry(unit, name, DS_ATTR_WORD);
    attr.word = ds_intern(&unit->strings, text);
    return attr;
}

static ds_attr shares_of(ds_unit *unit, const int64_t *shares, uint32_t n) {
    ds_attr attr = list(unit, "shares", n);
    for (uint32_t i = 0; i < n; i++)
        attr.items[i] =
            (ds_attr){.kind = DS_ATTR_EXPR, .expr = ds_expr_int(&unit->exprs, shares[i])};
    return attr;
}

static void say(ds_unit *unit, const char *name, ds_attr block) {
    static const char *const strategy[] = {"strategy"};
    ds_scenario_say(unit, strategy, 1, name, block);
}

void ds_group_set_shares(ds_unit *unit, const char *name, const int64_t *shares, uint32_t n) {
    const ds_attr *groups = ds_strategy_groups(unit);
    for (uint32_t i = 0; groups && i < groups->n_items; i++) {
        ds_attr block = groups->items[i];
        if (strcmp(block.name, name) != 0) continue;
        ds_attr *items = DS_NEW_N(&unit->arena, ds_attr, block.n_items + 1);
        memcpy(items, block.items, block.n_items * sizeof *items);
        uint32_t at = 0;
        while (at < block.n_items && strcmp(items[at].name, "shares") != 0) at++;
        const ds_loc loc = items[at].loc;
        items[at] = shares_of(unit, shares, n);
        items[at].loc = loc;
        block.n_items += at == block.n_items;
        block.items = items;
        say(unit, name, block);
    }
}

void ds_group_put(ds_unit *unit, const ds_op_group *group) {
    ds_attr block = {.word = ds_intern(&unit->strings, "group"),
                     .loc = group->loc,
                     .quoted_name = true,
                     .labelled = true,
                     .kind = DS_ATTR_BLOCK};
    block.items = DS_NEW_N(&unit->arena, ds_attr, 5);
    block.items[block.n_items++] = ops_of(unit, group);
    if (group->on) {
        ds_attr on = entry(unit, "on", DS_ATTR_PLACE);
        on.place = (ds_place){.kind = DS_PLACE_MESH, .name = ds_intern(&unit->strings, group->on)};
        block.items[block.n_items++] = on;
    }
    block.items[block.n_items++] = word(unit, "by", ds_group_way_word(group->by));
    if (group->shares)
        block.items[block.n_items++] = shares_of(unit, group->shares, group->n_shares);
    if (group->shares_by_time) block.items[block.n_items++] = word(unit, "shares", "time");
    if (group->serial && group->by == DS_GROUP_SFB)
        block.items[block.n_items++] = word(unit, "sfb_cost", "serial");
    if (group->sends_sums && group->by == DS_GROUP_PS)
        block.items[block.n_items++] = word(unit, "ps_sends", "gradients");
    say(unit, group->name, block);
}
