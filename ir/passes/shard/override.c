/* The strategy's overrides of single ops: `"layer[*].fc1" = on @v [n: x, k: y]`.
 *
 * An override says everything about its op: the op's mesh and the axes of each factor. A weight
 * that the op reads has the layout that the op wants. The backward ops of that op (fc1.dx, fc1.dw)
 * follow it: the same dims of the same tensors are split. Backward ops of products, convolutions
 * and normalisations have the forward op's letters. Others have not: the backward op of a transpose
 * `a b -> b a` swaps the letters, and a sub's is a neg with dims _0, _1. A backward op whose result
 * is a gradient of an operand has the operand's dims, so each of its letters gets the forward op's
 * name for the same dim.
 *
 * A pattern that names a backward op itself ("fc1.dw") goes before patterns of the forward op, and
 * has the letters of the backward op's own rule. It says nothing about a weight's layout. */
#include "ir/passes/shard/internal.h"

#include <stdlib.h>
#include <string.h>

/* The name of the forward op, from the name of a backward op or of a copy: fc1.dx, fc1.again → fc1;
 * a loss's gradient may be scaled, loss.dx.one → loss; NULL: neither. *end is the rest: dx,
 * again. */
static const char *forward_name(ds_arena *arena, const char *name, const char **end) {
    const char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".one") == 0) {
        name = ds_arena_strndup(arena, name, (size_t)(dot - name));
        dot = strrchr(name, '.');
    }
    bool other = dot && (ds_path_is_gradient(dot + 1) || strcmp(dot, ".again") == 0);
    *end = dot ? dot + 1 : "";
    return other ? ds_arena_strndup(arena, name, (size_t)(dot - name)) : NULL;
}

/* ---- letters of backward ops ---- */

/* The forward op's term of `rank` dims whose gradient has the name's end; NULL: not known. A loss's
 * dy is the gradient of its second operand, an lstm's dy of its result. */
static const ds_rule_term *term_of(const ds_rule *forward, const char *end, uint32_t rank) {
    static const char *const first[] = {"dx", "da", "dq"}, *const second[] = {"dw", "db", "dy"};
    uint32_t i = DS_MAX_OPERANDS;
    for (size_t k = 0; k < sizeof first / sizeof *first; k++) {
        if (strcmp(end, first[k]) == 0) i = 0;
        if (strcmp(end, second[k]) == 0) i = 1;
    }
    if (end[0] == 'd' && end[1] >= '0' && end[1] <= '9') i = (uint32_t)strtoul(end + 1, NULL, 10);
    if (strcmp(end, "dy") == 0 && forward->out[0].n == rank) return &forward->out[0];
    if (i >= DS_MAX_OPERANDS || !forward->n_in) return NULL;
    const ds_rule_term *term = &forward->in[i < forward->n_in ? i : forward->n_in - 1];
    return term->n == rank ? term : NULL;
}

/* Names for the factors of `rule` by the dims of its first result, which are the dims of `term`.
 * If a factor of the result gets another name, a factor outside of the result loses its name. */
static void rename_factors(ds_rule *rule, const ds_rule *forward, const ds_rule_term *term) {
    char names[DS_MAX_FACTORS][DS_FACTOR_NAME_MAX] = {0};
    bool same = true;
    for (uint32_t d = 0; d < term->n; d++) {
        const ds_rule_dim *to = &rule->out[0].dims[d], *from = &term->dims[d];
        for (uint32_t k = 0; k < to->n && k < from->n; k++) {
            const char *name = forward->names[from->factors[k]];
            memcpy(names[to->factors[k]], name, DS_FACTOR_NAME_MAX);
            same &= strcmp(rule->names[to->factors[k]], name) == 0;
        }
    }
    if (!same) memcpy(rule->names, names, sizeof names);
}

/* The forward op of a backward op or of a copy, and the end of the op's name; NULL: none. */
static const ds_op *forward_of(ds_sharder *s, const ds_shard_places *p, const ds_op *op,
                               const char **end) {
    const char *name = forward_name(&s->unit->arena, ds_path_op_name(p->func, op), end);
    if (!name) return NULL;
    const uint64_t *found = ds_map_find(&p->by_name, DS_KEY(ds_intern(&s->unit->strings, name)));
    return found ? (const ds_op *)(uintptr_t)*found : NULL;
}

ds_status ds_shard__rename(ds_sharder *s, const ds_op *op, ds_rule *rule, ds_error *err) {
    const char *end;
    const ds_op *of = forward_of(s, s->f.places, op, &end);
    ds_rule forward;
    if (!of || !ds_path_is_gradient(end)) return DS_OK;
    DS_TRY(ds_shard__rule(s, of, &forward, err));
    const ds_rule_term *term = term_of(&forward, end, rule->out[0].n);
    if (term) rename_factors(rule, &forward, term);
    return DS_OK;
}

/* ---- where the ops of a function lie ---- */

typedef struct finder {
    ds_sharder *s;
    ds_shard_places *p;
    const ds_path_loop *loops;
    bool backward;
    ds_status (*visit)(struct finder *f, const ds_op *op, ds_error *err);
    DS_VEC(const ds_op *) * owned; /* one list a group: operations that have owners; heap */
} finder;

static ds_status walk(finder *f, const ds_block *block, ds_error *err) {
    for (uint32_t i = 0; i < block->n_ops; i++) {
        const ds_op *op = block->ops[i];
        if (op->code == DS_OP_FOR) {
            const ds_path_loop inside = {ds_path_loop_name(f->p->func, op), DS_ANY_TURN, f->loops};
            f->loops = &inside;
            ds_status status = walk(f, op->body, err);
            f->loops = inside.up;
            if (status != DS_OK) return status;
        }
        if (op->code >= DS_OP_FIRST_TABLE_OP)
            f->backward |= (ds_op_desc_of(op->code)->flags & DS_OPF_BACKWARD) != 0;
        if (op->code >= DS_OP_FIRST_TABLE_OP || op->code == DS_OP_CALL)
            DS_TRY(f->visit(f, op, err));
    }
    return DS_OK;
}

static ds_status walk_all(finder *f, ds_status (*visit)(finder *, const ds_op *, ds_error *),
                          ds_error *err) {
    f->visit = visit;
    f->backward = false;
    return walk(f, &f->p->func->body, err);
}

static ds_status note_name(finder *f, const ds_op *op, ds_error *err) {
    const char *name = ds_intern(&f->s->unit->strings, ds_path_op_name(f->p->func, op));
    (void)err;
    if (op->code != DS_OP_CALL && !ds_map_find(&f->p->by_name, DS_KEY(name)))
        ds_map_put(&f->p->by_name, DS_KEY(name), DS_KEY(op));
    return DS_OK;
}

void ds_shard__lay(ds_sharder *s, ds_shard_places *p, const ds_op *op, const ds_shard_lie *lie,
                   bool exact) {
    ds_shard_laid *laid = DS_NEW(&s->unit->arena, ds_shard_laid);
    *laid = (ds_shard_laid){lie, exact};
    ds_map_put(&p->laid, DS_KEY(op), DS_KEY(laid));
}

static const ds_shard_laid *laid_of(const ds_shard_places *p, const ds_op *op) {
    const uint64_t *found = ds_map_find(&p->laid, DS_KEY(op));
    return found ? (const ds_shard_laid *)(uintptr_t)*found : NULL;
}

/* The first override whose pattern matches. */
static ds_shard_lie *override_of(const finder *f, const char *name) {
    const char *func = f->s->step->func->name; /* a microbatch's ops have the step's paths */
    for (uint32_t i = 0; i < f->s->n_overrides; i++)
        if (ds_path_match(f->s->overrides[i].who, func, f->loops, name, NULL))
            return &f->s->overrides[i];
    return NULL;
}

static bool is_backward(const finder *f, const ds_op *op) {
    const char *end, *name = ds_path_op_name(f->p->func, op);
    return forward_name(&f->s->unit->arena, name, &end) && ds_path_is_gradient(end);
}

/* An op that an override names, or an op of the forward pass that is in a group. */
static ds_status lay_named(finder *f, const ds_op *op, ds_error *err) {
    const char *name = ds_path_op_name(f->p->func, op);
    ds_shard_group *group = NULL;
    if (op->code == DS_OP_CALL) return DS_OK;
    ds_shard_lie *lie = override_of(f, name);
    if (lie) {
        lie->used = true;
        ds_shard__lay(f->s, f->p, op, lie, true);
    } else {
        DS_TRY(ds_shard__group_of(f->s, f->loops, name, f->backward || is_backward(f, op), &group,
                                  err));
    }
    if (!group) return DS_OK;
    group->used = true;
    if (ds_shard__is_owned(group))
        DS_HPUSH(&f->owned[group - f->s->groups], op);
    else
        ds_shard__lay(f->s, f->p, op, &group->lies[0], true);
    return DS_OK;
}

/* A backward op, or a copy, lies as its forward op. */
static ds_status lay_followers(finder *f, const ds_op *op, ds_error *err) {
    const char *end, *name;
    (void)err;
    if (op->code == DS_OP_CALL || laid_of(f->p, op)) return DS_OK;
    name = forward_name(&f->s->unit->arena, ds_path_op_name(f->p->func, op), &end);
    const ds_shard_lie *lie = name ? override_of(f, name) : NULL;
    const ds_op *forward = lie ? NULL : forward_of(f->s, f->p, op, &end);
    const ds_shard_laid *laid = forward ? laid_of(f->p, forward) : NULL;
    if (laid && laid->lie->group) lie = laid->lie;
    if (lie) ds_shard__lay(f->s, f->p, op, lie, false);
    return DS_OK;
}

/* ---- arguments and their readers ---- */

ds_value ds_shard__arg_of(const ds_func *func, ds_value value) {
    const ds_value_info *info = ds_value_at(func, value);
    while (!info->is_arg && info->def && info->def->code == DS_OP_CAST) {
        value = info->def->in[0].value;
        info = ds_value_at(func, value);
    }
    return value;
}

static ds_status note_readers(finder *f, const ds_op *op, ds_error *err) {
    ds_shard_places *callee;
    if (op->code == DS_OP_CALL) {
        DS_TRY(ds_shard__places(f->s, op->callee, &callee, err));
        for (uint32_t i = 0; callee && i < op->callee->n_args; i++) {
            const char *name = ds_value_at(op->callee, op->callee->args[i])->name;
            const uint64_t *found = ds_map_find(&callee->readers, DS_KEY(name));
            if (found && !ds_map_find(&f->p->readers, DS_KEY(name)))
                ds_map_put(&f->p->readers, DS_KEY(name), *found);
        }
        return DS_OK;
    }
    const ds_shard_laid *laid = laid_of(f->p, op);
    if (is_backward(f, op)) return DS_OK; /* has no say in where a weight lies */
    for (uint32_t k = 0; laid && laid->exact && k < op->n_in && k < DS_MAX_OPERANDS; k++) {
        const ds_value_info *info =
            ds_value_at(f->p->func, ds_shard__arg_of(f->p->func, op->in[k].value));
        if (!info->is_arg || ds_map_find(&f->p->readers, DS_KEY(info->name))) continue;
        ds_shard_reader *reader = DS_NEW(&f->s->unit->arena, ds_shard_reader);
        *reader = (ds_shard_reader){op, laid->lie, f->p, k};
        ds_map_put(&f->p->readers, DS_KEY(info->name), DS_KEY(reader));
    }
    return DS_OK;
}

static ds_status find_places(finder *f, ds_error *err) {
    ds_sharder *s = f->s;
    bool joins = s->step->strategy.microbatches > 1 && f->p->func == s->step->func;
    DS_TRY(walk_all(f, note_name, err));
    if (!joins) { /* what puts microbatches together is no op of the model */
        DS_TRY(walk_all(f, lay_named, err));
        for (uint32_t i = 0; i < s->n_groups; i++)
            ds_shard__share_out(s, f->p, &s->groups[i], f->owned[i].at, f->owned[i].n);
        DS_TRY(walk_all(f, lay_followers, err));
    }
    DS_TRY(walk_all(f, note_readers, err));
    return s->wants_batch ? ds_shard__find_batch(s, f->p, err) : DS_OK;
}

ds_status ds_shard__places(ds_sharder *s, const ds_func *func, ds_shard_places **out,
                           ds_error *err) {
    *out = NULL;
    if (!s->n_overrides && !s->n_groups) return DS_OK;
    for (uint32_t i = 0; i < s->places.n; i++) {
        *out = s->places.at[i];
        if ((*out)->func == func) return DS_OK;
    }
    ds_shard_places *p = DS_NEW(&s->unit->arena, ds_shard_places);
    *out = p;
    p->func = func;
    ds_map_init(&p->by_name);
    ds_map_init(&p->laid);
    ds_map_init(&p->readers);
    DS_HPUSH(&s->places, p);
    finder f = {.s = s, .p = p};
    f.owned = ds_xcalloc(s->n_groups + 1, sizeof *f.owned);
    ds_status status = find_places(&f, err);
    for (uint32_t i = 0; i < s->n_groups; i++) free(f.owned[i].at);
    free(f.owned);
    return status;
}

void ds_shard__places_deinit(ds_sharder *s) {
    for (uint32_t i = 0; i < s->places.n; i++) {
        ds_map_deinit(&s->places.at[i]->by_name);
        ds_map_deinit(&s->places.at[i]->laid);
        ds_map_deinit(&s->places.at[i]->readers);
    }
    free(s->places.at);
}

/* ---- the lie of an op ---- */

ds_status ds_shard__overrides(ds_sharder *s, ds_error *err) {
    const ds_attr *ops = s->step->strategy.ops;
    s->overrides = DS_NEW_N(&s->unit->arena, ds_shard_lie, (ops ? ops->n_items : 0) + 1);
    for (uint32_t i = 0; ops && i < ops->n_items; i++) {
        const ds_attr *item = &ops->items[i];
        ds_shard_lie *lie = &s->overrides[s->n_overrides++];
        *lie = (ds_shard_lie){.who = item->name,
                              .loc = item->loc,
                              .factors = item->items,
                              .n_factors = item->n_items};
        DS_TRY(ds_shard__view(s, &item->place, item->loc, &lie->mesh, err));
        for (uint32_t k = 0; k < item->n_items; k++)
            s->wants_batch |= strcmp(item->items[k].name, DS_SHARD_BATCH) == 0;
    }
    return DS_OK;
}

const ds_shard_lie *ds_shard__lie(const ds_sharder *s, const ds_op *op, bool *exact) {
    const ds_shard_laid *laid = s->f.places ? laid_of(s->f.places, op) : NULL;
    *exact = laid && laid->exact;
    return laid ? laid->lie : NULL;
}

ds_status ds_shard__home(ds_sharder *s, const char *arg, bool weight, ds_layout *home, bool *found,
                         ds_error *err) {
    const uint64_t *known = s->f.places ? ds_map_find(&s->f.places->readers, DS_KEY(arg)) : NULL;
    const ds_shard_reader *reader = known ? (const ds_shard_reader *)(uintptr_t)*known : NULL;
    *found = reader && (weight || reader->lie->group);
    if (!*found) return DS_OK;
    ds_shard_choice choice = {0};
    const ds_func *from = s->f.from;
    ds_shard_places *places = s->f.places;
    s->f.from = reader->places->func;
    s->f.places = reader->places;
    ds_status status = ds_shard__forced(s, reader->op, reader->lie, true, &choice, err);
    s->f.from = from;
    s->f.places = places;
    *home = choice.in[reader->operand];
    return status;
}

ds_status ds_shard__overrides_used(const ds_sharder *s, ds_error *err) {
    for (uint32_t i = 0; i < s->n_overrides; i++)
        if (!s->overrides[i].used)
            return ds_error_set(err, DS_ERR_NAME, s->overrides[i].loc,
                                "the override \"%s\" matches no op of the model",
                                s->overrides[i].who);
    for (uint32_t i = 0; i < s->n_groups; i++)
        if (!s->groups[i].used)
            return ds_error_set(err, DS_ERR_NAME, s->groups[i].said.loc,
                                "group \"%s\" places no operation: its patterns match none of the "
                                "step, or entries of `ops` place them all",
                                s->groups[i].said.name);
    return DS_OK;
}
