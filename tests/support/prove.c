/* The judge is the executor: everything is compared as whole tensors, by name, within
 * max|a-b| <= 1e-9 max|a|. A refusal is one of four codes, and says something; whatever else goes
 * wrong in a pass is a defect of it. */
#include "tests/support/prove.h"

#include "ir/base/rng.h"
#include "ir/base/str.h"
#include "ir/exec/exec.h"
#include "ir/lang/lang.h"
#include "ir/passes/passes.h"
#include "ir/prove/check.h"
#include "ir/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN       1e-6
#define ROUNDINGS    30.0
#define MAX_DRAWS    8u
#define MAX_SEEDS    12
#define MAX_SETTINGS 24
#define MAX_PARTS    64

const char *proof_verdict_name(proof_verdict verdict) {
    static const char *const names[] = {"equal", "refused", "undecided", "wrong"};
    return names[verdict];
}

typedef struct prover {
    const proof_options *options;
    proof *out;
    const char *text;
    uint64_t seed;
    ds_exec_result *whole; /* of the last pass before shard */
} prover;

static bool fail(prover *p, const char *what, const char *detail) {
    p->out->verdict = PROOF_WRONG;
    snprintf(p->out->what, sizeof p->out->what, "%s: %s", what, detail);
    return false;
}

/* What a user may be told of a strategy that does not fit. */
static bool is_refusal(const ds_error *err) {
    bool code = err->code == DS_ERR_SHAPE || err->code == DS_ERR_VALUE ||
                err->code == DS_ERR_SHARDING || err->code == DS_ERR_UNSUPPORTED;
    return code && strlen(err->message) > 8;
}

static bool refused(prover *p, const char *pass, const ds_error *err) {
    char what[64];
    snprintf(what, sizeof what, "%s, %s", pass, ds_status_name(err->code));
    if (!is_refusal(err)) return fail(p, what, err->message);
    p->out->verdict = PROOF_REFUSED;
    snprintf(p->out->what, sizeof p->out->what, "%s: %s", what, err->message);
    return false;
}

/* ---- loading ---- */

typedef struct loaded {
    ds_unit *unit;
    ds_binding binding;
} loaded;

static uint32_t split(char *text, ds_setting *list) {
    uint32_t n = 0;
    for (char *word = strtok(text, " "); word && n < MAX_SETTINGS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        list[n++] = (ds_setting){word, equals + 1};
    }
    return n;
}

static void first_error(const ds_diags *diags, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++) {
        const ds_diag *d = &diags->all.at[i];
        if (d->severity != DS_SEV_ERROR) continue;
        ds_error_set(err, d->code, d->loc, "%s", d->message);
        return;
    }
}

static ds_status load(const char *text, const char *settings, loaded *out, ds_error *err) {
    char copy[512];
    ds_setting list[MAX_SETTINGS];
    ds_diags diags;
    snprintf(copy, sizeof copy, "%s", settings ? settings : "");
    uint32_t n = split(copy, list);
    ds_status status = ds_load_text(DS_SOURCE_DIR "/scenarios/test.dir", text, strlen(text), NULL,
                                    &out->unit, err);
    if (status != DS_OK) return status;
    ds_diags_init(&diags);
    status = ds_verify(out->unit, &diags);
    if (status == DS_OK) status = ds_bind(out->unit, list, n, &out->binding, err);
    if (status == DS_OK) status = ds_verify_bound(out->unit, &out->binding, &diags);
    first_error(&diags, err);
    ds_diags_deinit(&diags);
    return status;
}

/* ---- comparing ---- */

static bool run(prover *p, const char *what, const ds_binding *binding, ds_exec_result **out) {
    ds_exec_options options = {.seed = p->seed, .keep_inputs = true};
    ds_error err = {0};
    if (ds_exec_run(binding, &options, out, &err) == DS_OK) return true;
    return fail(p, what, err.message);
}

/* The step before it is sharded, again, without stages; what is made is the caller's, also after an
 * error. */
static bool make_unsharded(const char *text, const char *settings, loaded *source,
                           ds_model_step **out, ds_error *err) {
    if (load(text, settings, source, err) != DS_OK ||
        ds_model_step_new(&source->binding, out, err) != DS_OK)
        return false;
    (*out)->strategy.pp = 1;
    return ds_model_step_run_to(*out, DS_PASS_OPTIMIZER, NULL, NULL, err) == DS_OK;
}

/* The unsharded run with its inputs changed by some 1e-13 of each; NULL if that fails. */
static ds_exec_result *run_moved(const prover *p, const ds_exec_result *of, uint64_t draw) {
    loaded source = {0};
    ds_model_step *step = NULL;
    ds_exec_tensor *inputs = malloc((of->inputs.n + 1) * sizeof *inputs);
    ds_exec_result *out = NULL;
    for (uint32_t i = 0; i < of->inputs.n; i++) {
        ds_exec_tensor *t = &inputs[i];
        *t = of->inputs.at[i];
        t->at = malloc((size_t)(t->n + 1) * sizeof *t->at);
        bool real = ds_dtype_is_float(t->dtype);
        for (int64_t k = 0; k < t->n; k++)
            t->at[k] =
                of->inputs.at[i].at[k] *
                (1 + (real ? 2e-13 * (ds_rng_uniform_at(draw, i, (uint64_t)k, 0) - 0.5) : 0));
    }
    ds_exec_options options = {.seed = p->seed, .inputs = inputs, .n_inputs = of->inputs.n};
    ds_error err = {0};
    if (!make_unsharded(p->text, p->options->settings, &source, &step, &err) ||
        ds_exec_run(&step->binding, &options, &out, &err) != DS_OK)
        out = NULL;
    ds_model_step_free(step);
    ds_unit_free(source.unit);
    for (uint32_t i = 0; i < of->inputs.n; i++) free(inputs[i].at);
    free(inputs);
    return out;
}

static bool differs(prover *p, const char *what, const ds_exec_pair *pair) {
    char text[256];
    snprintf(text, sizeof text, "%s%s: max|a-b| = %g, max|a| = %g",
             pair->a ? pair->a->name : pair->b->name,
             pair->a && pair->b && pair->same_shape ? "" : " (no such result, or another shape)",
             pair->max_difference, pair->max_a);
    return fail(p, what, text);
}

static double largest_change(const ds_exec_tensor *a, const ds_exec_tensor *b) {
    double most = 0;
    for (int64_t i = 0; b && i < a->n; i++) most = fmax(most, fabs(a->at[i] - b->at[i]));
    return most;
}

/* Is the difference one that roundings make? Then a change of the inputs in their last places makes
 * one like it, if not the first then another: a rounding may go the same way twice. */
static bool is_rounding(const prover *p, const ds_exec_pair *pair, const char *name,
                        const ds_exec_result *whole) {
    bool is = false;
    if (!pair->a || !pair->b || !pair->same_shape) return false;
    for (uint64_t draw = 1; !is && draw <= MAX_DRAWS; draw++) {
        ds_exec_result *moved = run_moved(p, whole, draw);
        if (!moved) return false;
        double most = largest_change(pair->a, ds_exec_output(moved, name));
        is = pair->max_difference <= ROUNDINGS * most;
        ds_exec_result_free(moved);
    }
    return is;
}

static bool compare(prover *p, const char *what, const ds_exec_result *a, const ds_exec_result *b,
                    double bound, bool roundings) {
    ds_exec_comparison c;
    bool ok = true;
    ds_exec_compare(a, b, bound, &c);
    if (!c.same_inputs) ok = fail(p, what, "the inputs are others");
    if (!c.outputs.n) ok = fail(p, what, "there are no results");
    for (uint32_t i = 0; ok && i < c.outputs.n; i++) {
        const ds_exec_pair *pair = &c.outputs.at[i];
        if (pair->equal) continue;
        if (roundings && is_rounding(p, pair, pair->a ? pair->a->name : "", a))
            p->out->rounded++;
        else
            ok = differs(p, what, pair);
    }
    ds_exec_comparison_deinit(&c);
    return ok;
}

/* ---- stages: results have the names of their chunks and copies ---- */

/* "w.c1.grad{3}" of %w.c1, which is the model's %w: "w.grad{3}". What passes have added to a name
 * that shard or overlap changed (".whole", "_2") is dropped. NULL: nothing of the weight's. */
static const char *name_in_model(ds_arena *arena, const ds_step_weight *weight, const char *name) {
    static const char *const ends[] = {".grad", ".m.new", ".v.new", ".master.new", ".new"};
    size_t n = strlen(weight->name);
    const char *element = name + strcspn(name, "{");
    if (strncmp(name, weight->name, n) != 0) return NULL;
    for (uint32_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strncmp(name + n, ends[i], strlen(ends[i])) == 0 &&
            strchr("{._", name[n + strlen(ends[i])]))
            return ds_arena_printf(arena, "%s%s%s", weight->base, ends[i], element);
    return NULL;
}

static const char *name_of_result(ds_arena *arena, const ds_model_step *step, const char *name) {
    const ds_step_weight *longest = NULL;
    const char *found = name;
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_step_weight *weight = &step->weights.at[i];
        const char *is = name_in_model(arena, weight, name);
        if (!is || (longest && strlen(longest->name) > strlen(weight->name))) continue;
        longest = weight;
        found = is;
    }
    return found;
}

/* Each result's partner in the sequential run, under its own name, so that both can be compared;
 * all of the sequential run's must be met. Names of that run in `names`. */
static bool find_partners(prover *p, const char *what, const ds_model_step *step,
                          const ds_exec_result *now, ds_exec_result *partners, const char **names) {
    const ds_exec_result *whole = p->whole;
    bool *met = DS_NEW_N(&partners->arena, bool, whole->outputs.n + 1);
    for (uint32_t i = 0; i < now->outputs.n; i++) {
        const char *own = now->outputs.at[i].name, *name = own;
        uint32_t k = i;
        if (i >= step->n_model_results) {
            name = name_of_result(&partners->arena, step, own);
            for (k = 0; k < whole->outputs.n; k++)
                if (strcmp(whole->outputs.at[k].name, name) == 0) break;
        }
        if (k >= whole->outputs.n) return fail(p, what, own);
        ds_exec_tensor partner = whole->outputs.at[k];
        names[i] = partner.name;
        partner.name = own;
        DS_HPUSH(&partners->outputs, partner);
        met[k] = true;
    }
    for (uint32_t k = 0; k < whole->outputs.n; k++)
        if (!met[k]) return fail(p, what, whole->outputs.at[k].name);
    return true;
}

static bool compare_staged(prover *p, const char *what, const ds_model_step *step,
                           const ds_exec_result *now) {
    ds_exec_result partners = {.n_devices = 1};
    ds_exec_comparison c;
    ds_arena_init(&partners.arena);
    const char **names = DS_NEW_N(&partners.arena, const char *, now->outputs.n + 1);
    bool ok = find_partners(p, what, step, now, &partners, names);
    ds_exec_compare(&partners, now, DS_EXEC_BOUND, &c);
    for (uint32_t i = 0; ok && i < c.outputs.n; i++) {
        const ds_exec_pair *pair = &c.outputs.at[i];
        if (pair->equal) continue;
        if (is_rounding(p, pair, names[i], p->whole))
            p->out->rounded++;
        else
            ok = differs(p, what, pair);
    }
    ds_exec_comparison_deinit(&c);
    free(partners.outputs.at);
    ds_arena_deinit(&partners.arena);
    return ok;
}

/* The first seed, from the one that is asked for, at which no decision is close. */
static bool run_decided(prover *p, const ds_binding *binding, ds_exec_result **out) {
    for (uint32_t i = 0; i < MAX_SEEDS; i++, p->seed++) {
        if (!run(p, "the unsharded step", binding, out)) return false;
        if ((*out)->margin >= MARGIN) return true;
        ds_exec_result_free(*out);
        *out = NULL;
    }
    p->out->verdict = PROOF_UNDECIDED;
    snprintf(p->out->what, sizeof p->out->what, "no margin above 1e-6 in %d seeds", MAX_SEEDS);
    return false;
}

/* ---- texts ---- */

static void print(const ds_unit *unit, ds_buf *out) {
    ds_print_module(unit->modules.at[0], out);
    ds_buf_put(out, "");
}

static bool same_again(prover *p, const char *pass, const ds_buf *text, const loaded *again,
                       const ds_exec_result *result) {
    ds_buf second = {0};
    ds_exec_result *repeated = NULL;
    print(again->unit, &second);
    bool ok = strcmp(text->text, second.text) == 0 || fail(p, pass, "prints otherwise when parsed");
    ok = ok && run(p, pass, &again->binding, &repeated) &&
         compare(p, pass, result, repeated, 0.0, false);
    ds_exec_result_free(repeated);
    ds_buf_deinit(&second);
    return ok;
}

/* The printed text parses, verifies, prints the same and executes the same. */
static bool check_text(prover *p, const ds_model_step *step, ds_pass_id pass,
                       const ds_exec_result *result) {
    ds_buf text = {0};
    loaded again = {0};
    ds_error err = {0};
    char what[64];
    snprintf(what, sizeof what, "the text after %s", ds_pass_name(pass));
    print(step->unit, &text);
    bool ok = load(text.text, NULL, &again, &err) == DS_OK || fail(p, what, err.message);
    ok = ok && same_again(p, what, &text, &again, result);
    ds_unit_free(again.unit);
    ds_buf_deinit(&text);
    return ok;
}

static uint32_t count_words(const char *text, const char *word) {
    uint32_t n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) n++;
    return n;
}

static uint32_t count_communications(const ds_model_step *step) {
    static const char *const words[] = {"= all_reduce(", "= all_gather(", "= reduce_scatter(",
                                        "= all_to_all(", "= permute(",    "= reshard("};
    ds_buf text = {0};
    uint32_t n = 0;
    print(step->unit, &text);
    for (uint32_t i = 0; i < sizeof words / sizeof *words; i++)
        n += count_words(text.text, words[i]);
    ds_buf_deinit(&text);
    return n;
}

/* ---- gradients over microbatches ---- */

static const ds_exec_tensor *input_named(const ds_exec_result *parts, const char *name, int64_t k) {
    char text[256];
    snprintf(text, sizeof text, "%s{%lld}", name, (long long)k);
    for (uint32_t i = 0; i < parts->inputs.n; i++)
        if (strcmp(parts->inputs.at[i].name, text) == 0) return &parts->inputs.at[i];
    return NULL;
}

/* Inputs of the whole batch: "x{0}", "x{1}", … of the run, joined along dim 0, as "x"; elements are
 * the caller's. Families of weights are families there too. */
static uint32_t join_microbatches(const ds_func *func, const ds_exec_result *parts, int64_t m,
                                  ds_exec_tensor *out) {
    uint32_t n = 0;
    for (uint32_t a = 0; a < func->n_args && n < MAX_PARTS; a++) {
        const ds_value_info *info = ds_value_at(func, func->args[a]);
        const ds_exec_tensor *first = input_named(parts, info->name, 0);
        if (info->n_binders || !first) continue;
        ds_exec_tensor *t = &out[n++];
        *t = *first;
        t->name = info->name;
        t->dims[0] *= m;
        t->n *= m;
        t->at = malloc((size_t)t->n * sizeof *t->at);
        for (int64_t k = 0; k < m; k++)
            memcpy(t->at + k * first->n, input_named(parts, info->name, k)->at,
                   (size_t)first->n * sizeof *t->at);
    }
    return n;
}

static bool same_as_whole(prover *p, const ds_model_step *one, const ds_exec_result *parts,
                          int64_t m) {
    ds_exec_tensor given[MAX_PARTS];
    uint32_t n = join_microbatches(one->func, parts, m, given);
    ds_exec_options options = {.seed = p->seed, .inputs = given, .n_inputs = n};
    ds_exec_result *whole = NULL;
    ds_error err = {0};
    bool ok = ds_exec_run(&one->binding, &options, &whole, &err) == DS_OK ||
              fail(p, "the whole batch", err.message);
    if (ok && whole->margin >= MARGIN) {
        ds_exec_comparison c;
        ds_exec_compare(whole, parts, DS_EXEC_BOUND, &c);
        for (uint32_t i = 0; ok && i < c.outputs.n; i++)
            if (!c.outputs.at[i].equal)
                ok = fail(p, "microbatches against the whole batch",
                          c.outputs.at[i].a ? c.outputs.at[i].a->name : c.outputs.at[i].b->name);
        ds_exec_comparison_deinit(&c);
    }
    ds_exec_result_free(whole);
    for (uint32_t i = 0; i < n; i++) free(given[i].at);
    return ok;
}

static bool whole_batch(prover *p, const ds_exec_result *parts, int64_t m) {
    char settings[560];
    loaded source = {0};
    ds_model_step *one = NULL;
    ds_error err = {0};
    const char *given = p->options->settings;
    snprintf(settings, sizeof settings, "%s microbatches=1", given ? given : "");
    bool ok = make_unsharded(p->text, settings, &source, &one, &err) ||
              fail(p, "the whole batch", err.message);
    ok = ok && same_as_whole(p, one, parts, m);
    ds_model_step_free(one);
    ds_unit_free(source.unit);
    return ok;
}

/* ---- all passes ---- */

static bool advance(prover *p, ds_model_step *step, ds_pass_id pass) {
    ds_error err = {0};
    if (ds_model_step_run(step, pass, &err) == DS_OK) return true;
    return refused(p, ds_pass_name(pass), &err);
}

/* The step without stages: leaves its result in p->whole. */
static bool run_sequential(prover *p) {
    loaded source = {0};
    ds_model_step *step = NULL;
    ds_error err = {0};
    bool ok = make_unsharded(p->text, p->options->settings, &source, &step, &err) ||
              fail(p, "the step without stages", err.message);
    ok = ok && run_decided(p, &step->binding, &p->whole);
    ds_model_step_free(step);
    ds_unit_free(source.unit);
    return ok;
}

/* What a step with stages gives on one device. */
static bool check_staged(prover *p, const ds_model_step *step) {
    ds_exec_result *now = NULL;
    bool ok = run_sequential(p) && run(p, "with stages", &step->binding, &now) &&
              compare_staged(p, "with stages", step, now);
    ds_exec_result_free(now);
    return ok;
}

/* lower, stage, grad, optimizer: leaves the result of the last, or of what it is without stages,
 * in p->whole. */
static bool make_step(prover *p, const loaded *source, ds_model_step **out) {
    ds_error err = {0};
    ds_exec_result *first = NULL, *now = NULL;
    if (ds_model_step_new(&source->binding, out, &err) != DS_OK) return refused(p, "lower", &err);
    ds_model_step *step = *out;
    int64_t m = step->strategy.microbatches;
    bool ok = true;
    if (p->options->texts) {
        ok = run(p, "the text after lower", &step->binding, &now) &&
             check_text(p, step, DS_PASS_LOWER, now);
        if (ok && m == 1 && step->train.loss == DS_LOSS_NONE)
            ok = run(p, "the model", &source->binding, &first) &&
                 compare(p, "the model and what lower makes of it", first, now, DS_EXEC_BOUND,
                         false);
        ds_exec_result_free(first);
        ds_exec_result_free(now);
    }
    for (uint32_t i = DS_PASS_STAGE; ok && i <= DS_PASS_OPTIMIZER; i++) {
        if (!ds_model_step_wants(step, (ds_pass_id)i)) continue;
        now = NULL;
        ok = advance(p, step, (ds_pass_id)i);
        if (!ok || !p->options->texts) continue;
        ok = run(p, ds_pass_name((ds_pass_id)i), &step->binding, &now) &&
             check_text(p, step, (ds_pass_id)i, now);
        ds_exec_result_free(now);
    }
    if (step->strategy.pp > 1) return ok && check_staged(p, step);
    ok = ok && run_decided(p, &step->binding, &p->whole);
    return ok && (m == 1 || !p->options->whole_batch || whole_batch(p, p->whole, m));
}

static void count_zeros(proof *out, const ds_exec_result *result) {
    for (uint32_t i = 0; i < result->outputs.n; i++) {
        const ds_exec_tensor *t = &result->outputs.at[i];
        int64_t k = 0;
        while (k < t->n && t->at[k] == 0) k++;
        out->zeros += k == t->n;
    }
    out->compared = result->outputs.n;
    out->devices = result->n_devices;
}

static bool check_pass(prover *p, ds_model_step *step, ds_pass_id pass) {
    const char *name = ds_pass_name(pass);
    ds_exec_result *now = NULL;
    bool ok = run(p, name, &step->binding, &now) &&
              (step->strategy.pp > 1 ? compare_staged(p, name, step, now)
                                     : compare(p, name, p->whole, now, DS_EXEC_BOUND, true)) &&
              (!p->options->texts || check_text(p, step, pass, now));
    p->out->compared = p->out->zeros = 0;
    if (now) count_zeros(p->out, now);
    ds_exec_result_free(now);
    return ok;
}

/* Of a step with stages, whose weights say what belongs together. */
static bool check_weights(prover *p, const ds_model_step *step) {
    const ds_func *func = step->func;
    for (uint32_t i = 0; i < step->weights.n; i++) {
        const ds_step_weight *weight = &step->weights.at[i];
        const ds_value_info *before = ds_value_at(func, weight->arg);
        if (weight->new_result == DS_NO_RESULT) continue;
        if (weight->master.i != DS_NO_VALUE.i) continue; /* the result may be the master's */
        if (ds_type_equal(&step->unit->exprs, before->type, func->results[weight->new_result]) ==
            DS_NO)
            return fail(p, "an update lies elsewhere", weight->name);
    }
    return true;
}

/* The argument of that name without ".new", or -1. */
static int updated_argument(const ds_func *func, const char *result) {
    size_t n = strlen(result);
    if (n < 5 || strcmp(result + n - 4, ".new") != 0) return -1;
    for (uint32_t a = 0; a < func->n_args; a++) {
        const char *name = ds_value_at(func, func->args[a])->name;
        if (strlen(name) == n - 4 && strncmp(name, result, n - 4) == 0) return (int)a;
    }
    return -1;
}

/* For each result the argument that it is the new value of. Heap. */
static int *updates_of(const ds_func *func) {
    int *argument = malloc((func->n_results + 1) * sizeof *argument);
    const ds_op *ret = func->body.ops[func->body.n_ops - 1];
    for (uint32_t i = 0; i < func->n_results; i++)
        argument[i] = updated_argument(func, ds_value_at(func, ret->in[i].value)->name);
    return argument;
}

/* The next step finds weights and states where this one did. */
static bool check_places(prover *p, const ds_model_step *step, const int *argument) {
    const ds_func *func = step->func;
    for (uint32_t i = 0; i < func->n_results; i++) {
        if (argument[i] < 0) continue;
        const ds_value_info *before = ds_value_at(func, func->args[argument[i]]);
        if (ds_type_equal(&step->unit->exprs, before->type, func->results[i]) == DS_NO)
            return fail(p, "an update lies elsewhere", before->name);
    }
    return true;
}

/* What follows, up to overlap; without texts only what is there in the end. */
static bool check_sharded(prover *p, ds_model_step *step) {
    ds_pass_id wanted[DS_PASS_COUNT];
    uint32_t n = 0;
    for (uint32_t i = DS_PASS_OPTIMIZER + 1; i <= DS_PASS_OVERLAP; i++)
        if (ds_model_step_wants(step, (ds_pass_id)i)) wanted[n++] = (ds_pass_id)i;
    int *updates = updates_of(step->func);
    bool ok = true;
    for (uint32_t i = 0; ok && i < n; i++) {
        ok = advance(p, step, wanted[i]);
        if (i + 1 == n || p->options->texts) ok = ok && check_pass(p, step, wanted[i]);
    }
    ok = ok && (step->strategy.pp > 1 ? check_weights(p, step) : check_places(p, step, updates));
    free(updates);
    if (ok) p->out->communications = count_communications(step);
    return ok;
}

/* One body per rank does what the program of all does; what ranks cannot say is refused. */
static bool check_ranks(prover *p, const loaded *source) {
    ds_step_check check;
    ds_error err = {0};
    ds_step_check_options options = {.seed = p->seed, .passes = 1u << DS_PASS_PROJECT};
    ds_status status = ds_model_step_check(&source->binding, &options, &check, &err);
    bool ok = status == DS_OK || is_refusal(&err) || fail(p, "project", err.message);
    if (ok && status == DS_OK && !check.equal)
        ok = fail(p, "project", check.worst ? check.worst->name : "nothing is compared");
    p->out->ranks = status == DS_OK && !check.skipped && check.rows.n > 0;
    ds_step_check_deinit(&check);
    return ok;
}

void prove(const char *text, const proof_options *options, proof *out) {
    prover p = {.options = options, .out = out, .text = text, .seed = options->seed};
    loaded source = {0};
    ds_model_step *step = NULL;
    ds_error err = {0};
    *out = (proof){.verdict = PROOF_EQUAL};
    if (load(text, options->settings, &source, &err) != DS_OK)
        refused(&p, "the scenario", &err);
    else if (make_step(&p, &source, &step) && check_sharded(&p, step) && options->ranks)
        check_ranks(&p, &source);
    ds_exec_result_free(p.whole);
    ds_model_step_free(step);
    ds_unit_free(source.unit);
}
