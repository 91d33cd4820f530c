#include "tests/support/stage.h"

#include "ir/base/str.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *stage_text(const char *model, const char *loss, const char *strategy) {
    ds_buf text = {0};
    ds_buf_printf(&text,
                  "dir 1\nimport \"models/%s.dir\"\nscenario {\n  model = @%s\n"
                  "  train { loss = %s, optimizer = sgd }\n  strategy { %s }\n}\n",
                  model, model, loss, strategy);
    return text.text;
}

void stage_make(step_case *c, const char *model, const char *settings, const char *strategy) {
    char *text = stage_text(model, strcmp(model, "mlp") ? "none" : "mse", strategy);
    step_make(c, text, settings, DS_PASS_STAGE);
    free(text);
}

const ds_step_weight *stage_weight(const step_case *c, const char *name) {
    for (uint32_t i = 0; i < c->step->weights.n; i++)
        if (strcmp(c->step->weights.at[i].name, name) == 0) return &c->step->weights.at[i];
    return NULL;
}

/* ---- chunks of units ---- */

enum { NONE = -1 };

static void read_chunk(const step_case *c, const ds_op *op, int *chunk) {
    for (uint32_t i = 0; i < op->n_in; i++)
        for (uint32_t w = 0; w < c->step->weights.n; w++) {
            const ds_step_weight *weight = &c->step->weights.at[w];
            if (weight->arg.i != op->in[i].value.i) continue;
            cr_assert(*chunk == NONE || *chunk == (int)weight->chunk,
                      "weights of chunks %d and %u are read at once, %s the second", *chunk,
                      weight->chunk, weight->name);
            *chunk = (int)weight->chunk;
        }
    for (uint32_t i = 0; op->body && i < op->body->n_ops; i++)
        read_chunk(c, op->body->ops[i], chunk);
}

static int64_t number(const step_case *c, ds_expr e) {
    ds_env env = ds_binding_env(&c->step->binding, NULL);
    int64_t value = 0;
    cr_assert_eq(ds_expr_eval_int(&env, e, DS_NOWHERE, &value, NULL), DS_OK);
    return value;
}

static char *chunks(const step_case *c, bool all) {
    const ds_block *body = &c->step->func->body;
    ds_buf out = {0};
    int last = 0;
    for (uint32_t i = 0; i + 1 < body->n_ops; i++) {
        const ds_op *op = body->ops[i];
        bool loop = op->code == DS_OP_FOR;
        int chunk = NONE;
        read_chunk(c, op, &chunk);
        if (chunk != NONE) {
            cr_assert_geq(chunk, last, "what is behind is in chunk %d, before %d", chunk, last);
            last = chunk;
        }
        int64_t n = loop ? number(c, op->hi) - number(c, op->lo) : all;
        for (int64_t k = 0; k < n; k++) {
            if (out.n) ds_buf_putc(&out, ' ');
            if (chunk == NONE)
                ds_buf_putc(&out, '-');
            else
                ds_buf_printf(&out, "%d", chunk);
        }
    }
    ds_buf_put(&out, "");
    return out.text;
}

char *stage_turns(const step_case *c) {
    return chunks(c, false);
}

char *stage_units(const step_case *c) {
    return chunks(c, true);
}
