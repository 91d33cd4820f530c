/* Functions, programs and ops as text. */
#include "ir/lang/lang.h"
#include "ir/lang/print_internal.h"
#include "ir/ops/ops.h"

#include <inttypes.h>

static void print_block(ds_printer *p, const ds_block *block, const ds_trivia *trivia);

/* ---- values and types ---- */

static void print_value(ds_printer *p, ds_value value) {
    ds_buf_printf(p->out, "%%%s", ds_value_at(p->func, value)->name);
}

static void print_type(ds_printer *p, const ds_type *type) {
    ds_type_print(p->exprs, type, p->out);
}

static void print_use(ds_printer *p, const ds_use *use) {
    print_value(p, use->value);
    if (use->bare) return;
    for (uint32_t k = 0; k < use->n_index; k++) {
        ds_printer_put(p, k ? ", " : "{");
        ds_printer_expr(p, use->index[k]);
        if (!use->index_hi || !DS_HAS_EXPR(use->index_hi[k])) continue;
        ds_printer_put(p, ":");
        ds_printer_expr(p, use->index_hi[k]);
    }
    if (use->n_index) ds_printer_put(p, "}");
}

static void print_uses(ds_printer *p, const ds_use *uses, uint32_t n) {
    for (uint32_t k = 0; k < n; k++) {
        ds_printer_comma(p, k);
        print_use(p, &uses[k]);
    }
}

static void print_operands(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, "(");
    print_uses(p, op->in, op->n_in);
    ds_printer_put(p, ")");
}

static void print_binders(ds_printer *p, const ds_binder *binders, uint32_t n) {
    if (!n) return;
    for (uint32_t k = 0; k < n; k++) {
        ds_printer_put(p, k ? ", " : "{");
        ds_buf_printf(p->out, "%s: ", binders[k].name);
        ds_printer_range(p, binders[k].lo, binders[k].hi);
    }
    ds_printer_put(p, "}");
}

/* A kept value of a loop has the loop's index for its binder, a carried one those of the carry, what
 * a rec defines or gives has the rec's dims: they go without saying. */
static bool binder_is_implied(const ds_printer *p, const ds_op *op, uint32_t result) {
    return op->code == DS_OP_FOR || op->code == DS_OP_REC ||
           ds_value_at(p->func, op->out[result])->in_rec;
}

/* Has the value a type, and can it be said here? What a function of another module gives may be
 * made of that module's params, which have no name in this one (or mean something else). */
static bool has_type_text(const ds_printer *p, ds_value value) {
    const ds_value_info *info = ds_value_at(p->func, value);
    uint32_t module = p->func->module->id;
    if (!info->type || !ds_type_is_of(p->exprs, info->type, module)) return false;
    for (uint32_t k = 0; k < info->n_binders; k++)
        if (!ds_expr_is_of(p->exprs, info->binders[k].lo, module) ||
            !ds_expr_is_of(p->exprs, info->binders[k].hi, module))
            return false;
    return true;
}

/* " : T1, T2" if there is text for the types of all results. */
static void print_result_types(ds_printer *p, const ds_op *op) {
    if (p->brief || !op->n_out) return;
    for (uint32_t k = 0; k < op->n_out; k++)
        if (!has_type_text(p, op->out[k])) return;
    ds_printer_put(p, " : ");
    for (uint32_t k = 0; k < op->n_out; k++) {
        const ds_value_info *info = ds_value_at(p->func, op->out[k]);
        ds_printer_comma(p, k);
        if (info->n_binders && !binder_is_implied(p, op, k)) {
            print_binders(p, info->binders, info->n_binders);
            ds_printer_put(p, " ");
        }
        print_type(p, info->type);
    }
}

static void print_attrs(ds_printer *p, const ds_op *op) {
    if (!p->brief) ds_printer_attrs(p, op->attrs, op->n_attrs);
}

/* ---- clauses ---- */

static void print_over(ds_printer *p, const ds_op *op, bool always_parens) {
    bool parens = always_parens || op->n_over > 1;
    ds_printer_put(p, parens ? " over (" : " over ");
    for (uint32_t k = 0; k < op->n_over; k++) {
        ds_printer_comma(p, k);
        ds_printer_put(p, op->over[k]);
    }
    if (parens) ds_printer_put(p, ")");
}

static void print_group(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, " group (");
    for (uint32_t k = 0; k < op->n_group; k++) {
        ds_printer_comma(p, k);
        ds_printer_expr(p, op->group[k]);
    }
    ds_printer_put(p, ")");
}

static void print_to(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, op->n_to > 1 ? " to (" : " to ");
    for (uint32_t k = 0; k < op->n_to; k++) {
        ds_printer_comma(p, k);
        ds_place_print(p->exprs, &op->to[k], p->out);
    }
    if (op->n_to > 1) ds_printer_put(p, ")");
}

static void print_clause(ds_printer *p, const char *word, ds_expr e) {
    if (!DS_HAS_EXPR(e)) return;
    ds_printer_put(p, word);
    ds_printer_expr(p, e);
}

static void print_clauses(ds_printer *p, const ds_op *op) {
    if (op->n_over) print_over(p, op, false);
    if (op->across) ds_printer_put(p, " across");
    if (op->has_group) print_group(p, op);
    print_clause(p, " dim ", op->dim);
    print_clause(p, " -> ", op->dim_to);
    if (op->n_to) print_to(p, op);
    print_clause(p, " to ", op->to_rank);
    print_clause(p, " from ", op->from_rank);
    print_clause(p, " tag ", op->tag);
}

/* ---- ops ---- */

static void print_for_head(ds_printer *p, const ds_op *op) {
    ds_buf_printf(p->out, "for %s in ", op->index);
    ds_printer_range(p, op->lo, op->hi);
    for (uint32_t k = 0; k < op->n_args; k++) {
        const ds_value_info *info = ds_value_at(p->func, op->args[k]);
        ds_printer_put(p, k ? ", " : " carry (");
        print_value(p, op->args[k]);
        if (!p->brief && has_type_text(p, op->args[k]))
            print_binders(p, info->binders, info->n_binders);
        if (!p->brief && has_type_text(p, op->args[k])) {
            ds_printer_put(p, ": ");
            print_type(p, info->type);
        }
        ds_printer_put(p, " = ");
        print_use(p, &op->in[k]);
    }
    if (op->n_args) ds_printer_put(p, ")");
}

/* {t, l}: the dims that the text states on the left of an equation. */
static void print_stated_dims(ds_printer *p, const ds_op *op) {
    for (uint32_t k = 0; k < op->n_dims; k++)
        ds_buf_printf(p->out, "%s%s", k ? ", " : "{", op->dims[k].name);
    if (op->n_dims) ds_printer_put(p, "}");
}

static void print_rec_head(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, "rec (");
    for (uint32_t k = 0; k < op->n_dims; k++) {
        ds_printer_comma(p, k);
        ds_buf_printf(p->out, "%s in ", op->dims[k].name);
        ds_printer_range(p, op->dims[k].lo, op->dims[k].hi);
    }
    ds_printer_put(p, ")");
    print_attrs(p, op);
}

static void print_case_head(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, "case ");
    for (uint32_t k = 0; k < op->n_in; k++) {
        ds_printer_comma(p, k);
        if (k < op->n_conds)
            ds_printer_expr(p, op->conds[k]);
        else
            ds_printer_put(p, "else");
        ds_printer_put(p, ": ");
        print_use(p, &op->in[k]);
    }
}

static void print_local_head(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, "local");
    print_over(p, op, true);
    ds_printer_put(p, " ");
    print_operands(p, op);
    if (!op->n_out || p->brief) return;
    ds_printer_put(p, op->n_out > 1 ? " -> (" : " -> ");
    for (uint32_t k = 0; k < op->n_out; k++) {
        ds_printer_comma(p, k);
        print_type(p, op->result_types[k]);
    }
    if (op->n_out > 1) ds_printer_put(p, ")");
}

/* An expression that '>' may follow. */
static void print_sum(ds_printer *p, ds_expr e) {
    ds_expr_kind kind = ds_expr_at(p->exprs, e)->kind;
    bool parens = kind == DS_EXPR_NOT || (kind >= DS_EXPR_OR && kind <= DS_EXPR_GE);
    if (parens) ds_printer_put(p, "(");
    ds_expr_print(p->exprs, e, p->out);
    if (parens) ds_printer_put(p, ")");
}

static void print_call_head(ds_printer *p, const ds_op *op) {
    ds_buf_printf(p->out, "call @%s", op->callee_name);
    for (uint32_t k = 0; k < op->n_mesh_args; k++) {
        ds_printer_put(p, k ? ", " : "<");
        ds_place_print(p->exprs, &op->mesh_args[k], p->out);
    }
    if (DS_HAS_EXPR(op->index_arg)) {
        ds_printer_put(p, op->n_mesh_args ? ", " : "<");
        print_sum(p, op->index_arg);
    }
    if (op->n_mesh_args || DS_HAS_EXPR(op->index_arg)) ds_printer_put(p, ">");
    print_operands(p, op);
}

static void print_yield(ds_printer *p, const ds_op *op) {
    uint32_t yielded = op->n_in - op->n_keep;
    ds_printer_put(p, yielded ? "yield " : "yield");
    print_uses(p, op->in, yielded);
    if (!op->n_keep) return;
    ds_printer_put(p, " keep ");
    print_uses(p, op->in + yielded, op->n_keep);
}

static void print_return(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, op->n_in ? "return " : "return");
    print_uses(p, op->in, op->n_in);
}

static void print_weight(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, "weight ");
    print_value(p, op->out[0]);
    print_stated_dims(p, op);
    const ds_type *type = ds_value_at(p->func, op->out[0])->type;
    if (type && !p->brief) {
        ds_printer_put(p, " : ");
        print_type(p, type);
    }
}

static void print_table_head(ds_printer *p, const ds_op *op) {
    ds_printer_put(p, ds_op_name(op->code));
    if (op->n_in) print_operands(p, op);
    print_clauses(p, op);
}

static void print_results(ds_printer *p, const ds_op *op) {
    if (op->code == DS_OP_WEIGHT) return;
    for (uint32_t k = 0; k < op->n_out; k++) {
        ds_printer_comma(p, k);
        print_value(p, op->out[k]);
        if (op->code != DS_OP_REC) print_stated_dims(p, op);
    }
    if (op->n_out) ds_printer_put(p, " = ");
}

static void print_head(ds_printer *p, const ds_op *op) {
    print_results(p, op);
    switch (op->code) {
    case DS_OP_FOR:
        print_for_head(p, op);
        break;
    case DS_OP_LOCAL:
        print_local_head(p, op);
        break;
    case DS_OP_CALL:
        print_call_head(p, op);
        break;
    case DS_OP_YIELD:
        print_yield(p, op);
        break;
    case DS_OP_RETURN:
        print_return(p, op);
        break;
    case DS_OP_WEIGHT:
        print_weight(p, op);
        break;
    case DS_OP_REC:
        print_rec_head(p, op);
        break;
    case DS_OP_CASE:
        print_case_head(p, op);
        break;
    default:
        print_table_head(p, op);
    }
}

static void print_op(ds_printer *p, const ds_op *op) {
    ds_printer_begin(p, &op->trivia);
    print_head(p, op);
    if (op->body) print_block(p, op->body, &op->trivia);
    if (op->code != DS_OP_REC) print_attrs(p, op); /* a rec's come before its body */
    /* A weight and a local region have said their types already. */
    if (op->code != DS_OP_WEIGHT && op->code != DS_OP_LOCAL) print_result_types(p, op);
    ds_printer_end(p, &op->trivia);
}

static void print_block(ds_printer *p, const ds_block *block, const ds_trivia *trivia) {
    ds_printer_open(p, trivia);
    for (uint32_t k = 0; k < block->n_ops; k++) print_op(p, block->ops[k]);
    ds_printer_close(p, &block->dangling);
}

/* ---- functions and programs ---- */

static void print_arg(ds_printer *p, ds_value arg) {
    const ds_value_info *info = ds_value_at(p->func, arg);
    print_value(p, arg);
    print_binders(p, info->binders, info->n_binders);
    ds_printer_put(p, ": ");
    print_type(p, info->type);
    ds_printer_attrs(p, info->attrs, info->n_attrs);
}

/* Before element k of a list: ", ", or in a tall list a line of its own. */
static void list_gap(ds_printer *p, uint32_t k, bool tall) {
    if (!tall) {
        ds_printer_comma(p, k);
        return;
    }
    ds_printer_put(p, k ? ",\n" : "\n");
    p->depth++;
    ds_printer_indent(p);
    p->depth--;
}

static void list_end(ds_printer *p, bool tall) {
    if (tall) {
        ds_printer_put(p, "\n");
        ds_printer_indent(p);
    }
    ds_printer_put(p, ")");
}

static void print_args(ds_printer *p, const ds_func *func, bool tall) {
    ds_printer_put(p, "(");
    for (uint32_t k = 0; k < func->n_args; k++) {
        list_gap(p, k, tall);
        print_arg(p, func->args[k]);
    }
    list_end(p, tall && func->n_args);
}

static void print_result(ds_printer *p, const ds_func *func, uint32_t k) {
    if (func->result_binders && func->n_result_binders[k]) {
        print_binders(p, func->result_binders[k], func->n_result_binders[k]);
        ds_printer_put(p, " ");
    }
    print_type(p, func->results[k]);
}

static void print_results_of(ds_printer *p, const ds_func *func, bool tall) {
    if (!func->n_results) return;
    tall = tall && func->n_results > 1;
    ds_printer_put(p, func->n_results > 1 ? " -> (" : " -> ");
    for (uint32_t k = 0; k < func->n_results; k++) {
        list_gap(p, k, tall);
        print_result(p, func, k);
    }
    if (func->n_results > 1) list_end(p, tall);
}

static void print_params(ds_printer *p, const ds_func *func) {
    for (uint32_t k = 0; k < func->n_mesh_params; k++)
        ds_buf_printf(p->out, "%smesh @%s", k ? ", " : "<", func->mesh_params[k]);
    if (func->index_param)
        ds_buf_printf(p->out, "%sindex %s", func->n_mesh_params ? ", " : "<", func->index_param);
    if (ds_func_open(func)) ds_printer_put(p, ">");
}

/* Length of the last line so far. */
static size_t column(const ds_printer *p) {
    size_t at = p->out->n;
    while (at > 0 && p->out->text[at - 1] != '\n') at--;
    return p->out->n - at;
}

#define HEADER_COLUMNS 100 /* beyond it, arguments stand one a line; then results too */

static void print_header(ds_printer *p, const ds_func *func) {
    size_t start = p->out->n;
    for (int attempt = 0; attempt < 3; attempt++) {
        p->out->n = start;
        print_args(p, func, attempt > 0);
        print_results_of(p, func, attempt > 1);
        if (column(p) <= HEADER_COLUMNS) return;
    }
}

void ds_printer_func(ds_printer *p, const ds_func *func) {
    p->func = func;
    ds_printer_begin(p, &func->trivia);
    ds_buf_printf(p->out, "func @%s", func->name);
    print_params(p, func);
    print_header(p, func);
    print_block(p, &func->body, &func->trivia);
    ds_printer_end(p, &func->trivia);
}

static void print_rank(ds_printer *p, const ds_func *rank) {
    p->func = rank;
    ds_printer_begin(p, &rank->trivia);
    ds_buf_printf(p->out, "rank %" PRId64, rank->rank);
    if (rank->n_args) {
        ds_printer_put(p, " ");
        print_header(p, rank);
    } else {
        print_results_of(p, rank, false);
    }
    print_block(p, &rank->body, &rank->trivia);
    ds_printer_end(p, &rank->trivia);
}

void ds_printer_program(ds_printer *p, const ds_program *program) {
    ds_printer_begin(p, &program->trivia);
    ds_buf_printf(p->out, "program @%s", program->name);
    ds_printer_open(p, &program->trivia);
    for (uint32_t k = 0; k < program->n_ranks; k++) print_rank(p, program->ranks[k]);
    ds_printer_close(p, &program->dangling);
    ds_printer_end(p, &program->trivia);
}

void ds_print_op_head(const ds_func *func, const ds_op *op, ds_buf *out) {
    ds_printer p = {.exprs = &func->module->unit->exprs, .func = func, .out = out, .brief = true};
    print_head(&p, op);
}
