/* Functions, blocks, programs, and the scopes of value names.
 *
 * The names in scope are one map from name to value; an inner scope notes what it overrides and
 * puts it back at its end, so that look-up costs O(1) however long a function is. */
#include "ir/lang/parse.h"

#include <stdlib.h>
#include <string.h>

/* ---- scopes ---- */

static void set_name(ds_parser *p, const char *name, uint64_t value) {
    const uint64_t *old = ds_map_find(&p->values, DS_KEY(name));
    DS_HPUSH(&p->undo, ((ds_scope_undo){name, old ? *old : 0}));
    ds_map_put(&p->values, DS_KEY(name), value);
}

void ds_parser_close_scope(ds_parser *p, uint32_t mark) {
    while (p->undo.n > mark) {
        ds_scope_undo undo = p->undo.at[--p->undo.n];
        ds_map_put(&p->values, DS_KEY(undo.name), undo.value);
    }
}

void ds_parser_bind(ds_parser *p, ds_value value) {
    set_name(p, ds_value_at(p->func, value)->name, (uint64_t)value.i + 1);
}

ds_value ds_parser_define(ds_parser *p, const char *name, ds_loc loc) {
    ds_value value = {p->func->values.n};
    const uint64_t *old = ds_map_find(&p->values, DS_KEY(name));
    if (old && *old > p->visible_from)
        ds_parser_fail(p, DS_ERR_NAME, loc,
                       "%%%s is already defined on line %u; values are defined once", name,
                       p->func->values.at[*old - 1].loc.line);
    DS_PUSH(p->arena, &p->func->values, ((ds_value_info){.name = name, .loc = loc}));
    ds_parser_bind(p, value);
    return value;
}

/* ---- functions ---- */

/* %x: T {attrs}, or a family %s{l: 0..layers}: T */
static ds_value parse_arg(ds_parser *p) {
    ds_token name = ds_parser_expect(p, DS_TOK_VALUE, "as an argument");
    ds_value value = ds_parser_define(p, name.name, name.loc);
    ds_value_info info = *ds_value_at(p->func, value);
    uint32_t mark = p->indices.n;
    info.is_arg = true;
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_binders(p, &info.binders, &info.n_binders);
    ds_parser_expect(p, DS_TOK_COLON, "before the argument's type");
    info.type = ds_parse_type(p);
    info.type_written = true;
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &info.attrs, &info.n_attrs);
    ds_parser_pop_indices(p, mark);
    *ds_value_at(p->func, value) = info;
    return value;
}

static void parse_args(ds_parser *p, ds_func *func) {
    DS_VEC(ds_value) args = {0};
    ds_parser_expect(p, DS_TOK_LPAREN, "before the arguments");
    while (ds_parser_more(p, DS_TOK_RPAREN)) {
        DS_PUSH(p->arena, &args, parse_arg(p));
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RPAREN, "after the arguments");
    func->args = args.at;
    func->n_args = args.n;
}

/* The results of a signature, each a type or a family of them. */
typedef struct results {
    DS_VEC(ds_type *) types;
    DS_VEC(ds_binder *) binders;
    DS_VEC(uint32_t) n_binders;
} results;

static void parse_result(ds_parser *p, results *list) {
    ds_binder *binders = NULL;
    uint32_t n_binders = 0, mark = p->indices.n;
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_binders(p, &binders, &n_binders);
    DS_PUSH(p->arena, &list->types, ds_parse_type(p));
    DS_PUSH(p->arena, &list->binders, binders);
    DS_PUSH(p->arena, &list->n_binders, n_binders);
    ds_parser_pop_indices(p, mark);
}

static void parse_results(ds_parser *p, ds_func *func) {
    results list = {0};
    if (!ds_parser_accept(p, DS_TOK_ARROW)) return;
    if (ds_parser_accept(p, DS_TOK_LPAREN)) {
        while (ds_parser_more(p, DS_TOK_RPAREN)) {
            parse_result(p, &list);
            if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
        }
        ds_parser_expect(p, DS_TOK_RPAREN, "after the result types");
    } else {
        parse_result(p, &list);
    }
    func->results = list.types.at;
    func->n_results = list.types.n;
    func->result_binders = list.binders.at;
    func->n_result_binders = list.n_binders.at;
}

/* <mesh @s, index first> */
static void parse_params(ds_parser *p, ds_func *func) {
    DS_VEC(const char *) meshes = {0};
    if (!ds_parser_accept(p, DS_TOK_LT)) return;
    do {
        if (ds_parser_accept_word(p, "index")) {
            ds_token name = ds_parser_expect_new_name(p, "for the index parameter");
            ds_parser_push_index(p, name.name, name.loc);
            func->index_param = name.name;
            break;
        }
        ds_parser_expect_word(p, "mesh", "or 'index' before the name of a parameter");
        DS_PUSH(p->arena, &meshes,
                ds_parser_expect(p, DS_TOK_SYMBOL, "for the mesh parameter").name);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_GT, "after the parameters");
    func->mesh_params = meshes.at;
    func->n_mesh_params = meshes.n;
}

static ds_func *new_func(ds_parser *p) {
    ds_func *func = DS_NEW(p->arena, ds_func);
    func->module = p->module;
    func->rank = -1;
    p->func = func;
    p->visible_from = 0;
    return func;
}

void ds_parse_block(ds_parser *p, ds_block *block, ds_trivia *opening) {
    DS_VEC(ds_op *) ops = {0};
    ds_parser_expect(p, DS_TOK_LBRACE, "before the body");
    ds_parser_opening(p, opening);
    p->blocks++;
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        ds_op *op = ds_parse_op(p);
        if (ops.n == 0) op->trivia.blank_before = false;
        DS_PUSH(p->arena, &ops, op);
    }
    p->blocks--;
    ds_parser_dangling(p, &block->dangling, ops.n == 0);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the body");
    block->ops = ops.at;
    block->n_ops = ops.n;
}

static void parse_body(ds_parser *p, ds_func *func) {
    ds_parse_block(p, &func->body, &func->trivia);
    ds_parser_close_scope(p, 0);
    ds_parser_end(p, &func->trivia);
}

void ds_parse_func(ds_parser *p) {
    ds_module *module = p->module;
    ds_func *func = new_func(p);
    uint32_t mark = p->indices.n;
    ds_parser_begin(p, &func->trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for the function");
    func->name = name.name;
    func->loc = name.loc;
    parse_params(p, func);
    parse_args(p, func);
    parse_results(p, func);
    parse_body(p, func);
    ds_parser_pop_indices(p, mark);
    DS_PUSH(p->arena, &module->funcs, func);
    DS_PUSH(p->arena, &module->items, ((ds_item){DS_ITEM_FUNC, module->funcs.n - 1}));
}

/* ---- programs ---- */

/* rank 1 (%x: f32[4]) -> T { … } */
static ds_func *parse_rank(ds_parser *p, const char *program, bool first) {
    ds_func *func = new_func(p);
    ds_parser_begin(p, &func->trivia, first);
    func->loc = p->tok.loc;
    func->name = program;
    ds_parser_expect_word(p, "rank", "or '}' in the program");
    func->rank = ds_parser_expect_int(p, "as the rank's number");
    if (ds_parser_at(p, DS_TOK_LPAREN)) parse_args(p, func);
    parse_results(p, func);
    parse_body(p, func);
    return func;
}

void ds_parse_program(ds_parser *p) {
    ds_module *module = p->module;
    ds_program *program = DS_NEW(p->arena, ds_program);
    DS_VEC(ds_func *) ranks = {0};
    ds_parser_begin(p, &program->trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for the program");
    program->name = name.name;
    program->loc = name.loc;
    ds_parser_expect(p, DS_TOK_LBRACE, "before the ranks");
    ds_parser_opening(p, &program->trivia);
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        ds_func *rank = parse_rank(p, program->name, ranks.n == 0);
        DS_PUSH(p->arena, &ranks, rank);
    }
    ds_parser_dangling(p, &program->dangling, ranks.n == 0);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the ranks");
    program->ranks = ranks.at;
    program->n_ranks = ranks.n;
    ds_parser_end(p, &program->trivia);
    DS_PUSH(p->arena, &module->programs, program);
    DS_PUSH(p->arena, &module->items, ((ds_item){DS_ITEM_PROGRAM, module->programs.n - 1}));
}
