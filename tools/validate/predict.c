/* Rows to seconds: each becomes a scenario (scenario.h) and is simulated, a whole step, put
 * together from a few microbatches where search/compose knows how, which gives the same picoseconds.
 *
 * A microbatch size that the source does not say was chosen by those who measured, for speed: of
 * 1, 2, 4, … the fastest that fits into memory is taken. Of a planner's rows (testbed.plans) the
 * same holds for the layout. */
#include "tools/validate/predict.h"

#include "ir/base/units.h"
#include "ir/lang/library.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/terms.h"
#include "ir/verify/verify.h"
#include "search/compose/compose.h"
#include "search/driver/pool.h"
#include "sim/report/analysis.h"
#include "tools/validate/mfu.h"
#include "tools/validate/mixed.h"
#include "tools/validate/recipe.h"
#include "tools/validate/stack.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_MBS 16
#define GIB      1073741824.0
/* Of a step that cannot be put together, because its host or its transfers slow compute: what `run`
 * takes. The largest row of the tables needs 2 GB and 5 s. */
#define MOST_INSTANCES 20000000

/* ---- one scenario ---- */

static ds_status first_error(const ds_diags *diags, ds_status status, ds_error *err) {
    for (uint32_t i = 0; i < diags->all.n; i++)
        if (diags->all.at[i].severity == DS_SEV_ERROR)
            return ds_error_set(err, diags->all.at[i].code, DS_NOWHERE, "%s",
                                diags->all.at[i].message);
    return status;
}

static ds_status check_unit(ds_unit *unit, const ds_setting *settings, uint32_t n_settings,
                            ds_binding *binding, ds_error *err) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_status status = ds_verify(unit, &diags);
    if (status == DS_OK) {
        status = ds_bind(unit, settings, n_settings, binding, err);
        if (status == DS_OK) status = ds_verify_bound(unit, binding, &diags);
    }
    if (status != DS_OK) status = first_error(&diags, status, err);
    ds_diags_deinit(&diags);
    return status;
}

ds_status val_open(const char *text, size_t n, const ds_load_options *load, ds_unit **unit,
                   ds_binding *binding, ds_error *err) {
    DS_TRY(ds_load_text("row.dir", text, n, load, unit, err));
    return check_unit(*unit, NULL, 0, binding, err);
}

/* ---- DistIR's table ---- */

/* scenarios/distir-mlp.dir covers all of its rows. */
static ds_status open_mlp(const val_job *job, const val_row *row, ds_unit **unit,
                          ds_binding *binding, ds_error *err) {
    const ds_load_options *load = &job->load;
    char values[4][24];
    const int64_t numbers[] = {row->gpus, row->layers, row->gbs, row->hidden};
    static const char *const names[] = {"world", "layers", "batch", "width"};
    ds_setting settings[4];
    for (int i = 0; i < 4; i++) {
        snprintf(values[i], sizeof values[i], "%lld", (long long)numbers[i]);
        settings[i] = (ds_setting){names[i], values[i]};
    }
    char *path = ds_library_path("distir-mlp.dir", load);
    if (!path)
        return ds_error_set(err, DS_ERR_IO, DS_NOWHERE,
                            "cannot find distir-mlp.dir in the library; -I FOLDER adds a folder");
    ds_status status = ds_load_file(path, load, unit, err);
    free(path);
    if (status != DS_OK) return status;
    if (job->zero_shot)
        ds_scenario_set(*unit, "", "profile", (ds_attr){.kind = DS_ATTR_WORD, .word = VAL_GENERIC});
    return check_unit(*unit, settings, 4, binding, err);
}

typedef struct timing {
    int64_t step_ps, peak_bytes, capacity_bytes;
    int64_t compute_ps, exposed_comm_ps; /* of the device that ends last; the rest is idle */
    bool fits;
    double share[DS_PART_COUNT]; /* 0: not known */
} timing;

static timing timing_of(const ds_metrics *m, int64_t compute_ps, int64_t exposed_comm_ps) {
    return (timing){.step_ps = m->step_ps,
                    .peak_bytes = m->peak_bytes,
                    .capacity_bytes = m->capacity_bytes,
                    .compute_ps = compute_ps,
                    .exposed_comm_ps = exposed_comm_ps,
                    .fits = m->fits};
}

/* Of a row whose memory another scenario says. */
static void take_times(const timing *from, timing *to) {
    to->step_ps = from->step_ps;
    to->compute_ps = from->compute_ps;
    to->exposed_comm_ps = from->exposed_comm_ps;
    memcpy(to->share, from->share, sizeof to->share);
}

static double seconds_of(int64_t ps) {
    return (double)ps / (double)DS_PS_PER_S;
}

/* The parts of the step, in seconds. */
static void set_times(const timing *t, val_prediction *p) {
    p->seconds = seconds_of(t->step_ps);
    p->compute_s = seconds_of(t->compute_ps);
    p->exposed_s = seconds_of(t->exposed_comm_ps);
    memcpy(p->share, t->share, sizeof p->share);
}

static ds_status time_binding(const ds_binding *binding, const ds_profiles *profiles,
                              ds_plan_ground *ground, timing *out, ds_error *err) {
    ds_sim_options options = {.cost_mode = DS_COST_FITTED,
                              .trust_passes = true,
                              .ground = ground,
                              .max_instances = MOST_INSTANCES};
    ds_composed composed;
    ds_result *result;
    ds_error unsaid;
    const char *why;
    DS_TRY(ds_sim_options_read(binding, &options, err));
    if (ds_compose(binding, profiles, &options, &composed, &why, &unsaid) == DS_OK && !why) {
        const ds_composed_class *last = &composed.classes[composed.critical];
        *out = timing_of(&composed.metrics, last->compute_ps, last->exposed_comm_ps);
        ds_composed_deinit(&composed);
        return DS_OK;
    }
    DS_TRY(ds_simulate(binding, profiles, &options, &result, err));
    const ds_metrics *m = &result->metrics;
    *out = timing_of(m, m->compute_ps, m->exposed_comm_ps);
    ds_critical_path path;
    ds_critical_path_find(result, &path);
    ds_step_shares(result, &path, out->share);
    ds_critical_path_deinit(&path);
    ds_result_free(result);
    return DS_OK;
}

static ds_status time_text(const val_job *job, ds_plan_ground *ground, const ds_buf *text,
                           timing *out, ds_error *err) {
    ds_unit *unit = NULL;
    ds_binding binding;
    ds_status status = val_open(text->text, text->n, &job->load, &unit, &binding, err);
    if (status == DS_OK) status = time_binding(&binding, job->profiles, ground, out, err);
    if (unit) ds_unit_free(unit);
    return status;
}

/* ---- one row ---- */

static bool contains(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; *text; text++)
        if (strncasecmp(text, word, n) == 0) return true;
    return false;
}

/* "8x7b" or "_a22b": experts, of which some are active. */
static bool names_experts(const char *name) {
    for (const char *at = name; *at; at++) {
        bool after_digit = at > name && isdigit((unsigned char)at[-1]);
        bool after_gap = at > name && !isalnum((unsigned char)at[-1]);
        size_t digits = strspn(at + 1, "0123456789.");
        bool billions = digits && tolower((unsigned char)at[1 + digits]) == 'b';
        int letter = tolower((unsigned char)*at);
        if (billions && ((letter == 'x' && after_digit) || (letter == 'a' && after_gap)))
            return true;
    }
    return false;
}

/* Families that are no dense transformer, or whose members differ in it: their dims are in zoo.h
 * or nowhere. */
static bool is_dense(const char *name) {
    static const char *const others[] = {
        "moe",      "expert",     "resnet",  "mixtral",    "dbrx",     "kimi",
        "deepseek", "gpt oss",    "grok",    "gpt-oss",    "gpt_oss",  "glam",
        "arctic",   "jamba",      "mamba",   "nemotron_3", "maverick", "scout",
        "switch",   "qwen3_next", "minimax", "bert"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (contains(name, others[i])) return false;
    return !names_experts(name);
}

static ds_status check_dense(const val_row *row, const val_testbed *t, ds_error *err) {
    if (row->known || t->model >= VAL_BERT || is_dense(row->model)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "no dense transformer: %s",
                        row->model);
}

ds_status val_check_model(const val_row *row, const val_testbed *t, ds_error *err) {
    DS_TRY(check_dense(row, t, err));
    bool narrow = contains(row->precision, "fp8") || contains(row->precision, "fp4");
    if (narrow && !t->narrow)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "%s: products narrower than the activations between them",
                            row->precision);
    if (row->known && row->ep > row->gpus_per_node && !val_testbed_is_generic(t))
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "ep %lld on nodes of %lld: no step that the profile was fitted to has "
                            "experts across nodes; --zero-shot predicts the row",
                            (long long)row->ep, (long long)row->gpus_per_node);
    if (row->known) return DS_OK;
    if (t->model != VAL_LLAMA && row->kv_heads != row->heads)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                            "kv_heads = %lld of %lld heads: the source's model has no grouped "
                            "queries",
                            (long long)row->kv_heads, (long long)row->heads);
    if (t->model != VAL_LLAMA && row->ffn != 4 * row->hidden)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "ffn %lld is not 4 hidden",
                            (long long)row->ffn);
    return DS_OK;
}

static ds_status time_scenario(const val_job *job, ds_plan_ground *ground, const val_row *row,
                               const val_testbed *testbed, val_purpose purpose, timing *out,
                               ds_error *err) {
    ds_buf text = {0};
    val_scenario(row, testbed, purpose, 0, &text);
    ds_status status = time_text(job, ground, &text, out, err);
    ds_buf_deinit(&text);
    return status;
}

/* Layers are alike: where each K-th runs again, the step lies between the step without and the step
 * with all of its layers again, in time and in memory. */
static ds_status time_layers(const val_job *job, ds_plan_ground *ground, const val_row *row,
                             const val_testbed *testbed, timing *out, ds_error *err) {
    val_row kept = *row, again = *row;
    timing all;
    if (!row->every) return time_scenario(job, ground, row, testbed, VAL_TIME, out, err);
    kept.recompute = "none";
    again.recompute = "full";
    DS_TRY(time_scenario(job, ground, &again, testbed, VAL_TIME, &all, err));
    DS_TRY(time_scenario(job, ground, &kept, testbed, VAL_TIME, out, err));
    double share = 1 / (double)row->every;
    out->step_ps += (int64_t)(share * (double)(all.step_ps - out->step_ps));
    out->compute_ps += (int64_t)(share * (double)(all.compute_ps - out->compute_ps));
    out->exposed_comm_ps += (int64_t)(share * (double)(all.exposed_comm_ps - out->exposed_comm_ps));
    out->peak_bytes -= (int64_t)(share * (double)(out->peak_bytes - all.peak_bytes));
    out->fits = out->peak_bytes <= out->capacity_bytes || !out->capacity_bytes;
    return DS_OK;
}

/* A scenario, and another one that a share of the layers, which are alike, is as. */
typedef struct two_scenarios {
    const val_row *rows[2];
    val_purpose purposes[2];
    double share; /* of the second */
} two_scenarios;

/* Memory that the allocator reserves, with the process's own. */
static ds_status reserve(const val_job *job, ds_plan_ground *ground, const two_scenarios *two,
                         const val_testbed *testbed, val_prediction *p, ds_error *err) {
    timing t[2] = {0};
    double share = two->share;
    for (int i = 0; i < (share > 0 ? 2 : 1); i++) {
        ds_buf text = {0};
        val_scenario(two->rows[i], testbed, two->purposes[i], val_memory_microbatches(two->rows[i]),
                     &text);
        ds_status status = time_text(job, ground, &text, &t[i], err);
        ds_buf_deinit(&text);
        if (status != DS_OK) return status;
    }
    double between = share * (double)(t[0].peak_bytes - t[1].peak_bytes);
    p->peak_gib = ((double)t[0].peak_bytes - (share > 0 ? between : 0)) / GIB;
    p->capacity_gib = (double)t[0].capacity_bytes / GIB;
    return DS_OK;
}

/* Memory of a row whose layout is decided: of layers that run again, or of a recipe's layers at
 * hosts. */
static ds_status keep_reserved(const val_job *job, ds_plan_ground *ground,
                               const val_testbed *testbed, val_prediction *p, ds_error *err) {
    val_row kept = p->row, again = p->row;
    kept.recompute = "none";
    again.recompute = "full";
    two_scenarios two = {{&p->row, &p->row}, {VAL_MEMORY, VAL_MEMORY}, 0};
    if (testbed->recipes)
        two = (two_scenarios){
            {&p->row, &p->row}, {VAL_FITS, VAL_AT_HOST}, val_recipe_offloaded(&p->row)};
    else if (p->row.every)
        two = (two_scenarios){{&kept, &again}, {VAL_MEMORY, VAL_MEMORY}, 1 / (double)p->row.every};
    return reserve(job, ground, &two, testbed, p, err);
}

static ds_status time_row(const val_job *job, ds_plan_ground *ground, const val_row *row,
                          const val_testbed *testbed, val_prediction *p, ds_error *err) {
    timing t;
    DS_TRY(time_layers(job, ground, row, testbed, &t, err));
    if (testbed->gathers_ahead && row->zero == 1) {
        val_testbed in_turn = *testbed;
        timing sharded;
        in_turn.gathers_ahead = false;
        DS_TRY(time_layers(job, ground, row, &in_turn, &sharded, err));
        take_times(&t, &sharded);
        t = sharded;
    }
    double seconds = seconds_of(t.step_ps);
    p->fits_last = t.fits;
    bool first = !(p->seconds > 0), other_fits = !first && p->peak_gib <= p->capacity_gib;
    if (!first && (!t.fits || (other_fits && seconds >= p->seconds))) return DS_OK;
    p->row = *row;
    set_times(&t, p);
    p->peak_gib = (double)t.peak_bytes / GIB;
    p->capacity_gib = (double)t.capacity_bytes / GIB;
    p->mbs = row->mbs;
    p->vpp = row->vpp;
    return DS_OK;
}

/* One microbatch size, and where the testbed interleaves the best number of chunks of a stage. */
static ds_status time_chunks(const val_job *job, ds_plan_ground *ground, val_row *row,
                             const val_testbed *testbed, val_prediction *p, ds_error *err) {
    DS_TRY(time_row(job, ground, row, testbed, p, err));
    int64_t most = row->pp > 1 ? testbed->chunks : 1;
    for (int64_t v = 2; v <= most; v++) {
        if (row->layers % (row->pp * v) || row->gbs / (row->mbs * row->dp) % row->pp) continue;
        row->vpp = v;
        DS_TRY(time_row(job, ground, row, testbed, p, err));
    }
    row->vpp = 1;
    return DS_OK;
}

/* Of microbatch sizes that the row leaves open the best. */
static ds_status time_open_row(const val_job *job, ds_plan_ground *ground, const val_row *open,
                               const val_testbed *testbed, val_prediction *p, ds_error *err) {
    ds_status status =
        ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "a batch of %lld is no multiple of dp %lld",
                     (long long)open->gbs, (long long)open->dp);
    for (int64_t mbs = 1; mbs <= MOST_MBS; mbs *= 2) {
        val_row row = *open;
        row.mbs = mbs;
        if (row.dp > 0 && row.gbs % (mbs * row.dp)) break;
        status = val_row_complete(&row, err);
        if (status == DS_OK) status = val_check_model(&row, testbed, err);
        if (status == DS_OK) status = time_chunks(job, ground, &row, testbed, p, err);
        if (status != DS_OK) break;
        if (!p->fits_last) break;
    }
    return p->seconds > 0 ? DS_OK : status;
}

/* Which layouts the method that is named beside a row tries, all of those with as many replicas,
 * shards of a layer and stages as powers of two. */
static bool is_tried(const val_row *row) {
    if (row->tp > row->gpus_per_node || row->heads % row->tp || row->pp > row->layers) return false;
    if (strstr(row->model, "inter_only")) return row->dp == 1 && row->tp == 1;
    if (strstr(row->model, "intra_only")) return row->pp == 1;
    return true;
}

/* 16 bytes a parameter for weights, gradients and Adam, of the blocks alone: what surely does not
 * fit need not be simulated. */
static bool is_too_large(const val_job *job, const val_row *row) {
    double params = 12.0 * (double)row->layers * (double)row->hidden * (double)row->hidden;
    uint32_t kind;
    ds_error unsaid;
    if (ds_profiles_find_kind(job->profiles, row->gpu, DS_NOWHERE, &kind, &unsaid) != DS_OK)
        return false;
    double room = (double)ds_profiles_kind(job->profiles, kind)->memory_bytes;
    return room > 0 && 16 * params / (double)(row->tp * row->pp) > room;
}

/* A layout that the source does not say, of a planner or of those who measured, is the fastest. */
static ds_status time_open_layout(const val_job *job, ds_plan_ground *ground, const val_row *open,
                                  const val_testbed *testbed, val_prediction *p, ds_error *err) {
    ds_status status = ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                                    "not stated: dp, tp, pp; and no layout fits");
    for (int64_t pp = 1; pp <= open->gpus; pp *= 2) {
        for (int64_t tp = 1; tp * pp <= open->gpus; tp *= 2) {
            val_row row = *open;
            row.pp = pp;
            row.tp = tp;
            row.dp = open->gpus / (tp * pp);
            if (row.dp * tp * pp != open->gpus || !is_tried(&row) || is_too_large(job, &row))
                continue;
            ds_error why;
            if (time_open_row(job, ground, &row, testbed, p, &why) == DS_OK)
                status = DS_OK;
            else if (status != DS_OK)
                *err = why;
        }
    }
    return status;
}

static ds_status time_mlp(const val_job *job, ds_plan_ground *ground, val_prediction *p,
                          ds_error *err) {
    ds_unit *unit = NULL;
    ds_binding binding;
    timing t;
    ds_status status = open_mlp(job, &p->row, &unit, &binding, err);
    if (status == DS_OK) status = time_binding(&binding, job->profiles, ground, &t, err);
    if (status == DS_OK) {
        set_times(&t, p);
        p->peak_gib = (double)t.peak_bytes / GIB;
        p->capacity_gib = (double)t.capacity_bytes / GIB;
        p->mbs = p->row.gbs / p->row.gpus;
        p->vpp = 1;
    }
    if (unit) ds_unit_free(unit);
    return status;
}

static bool is_unfit(const val_prediction *p) {
    return p->capacity_gib > 0 && p->peak_gib > p->capacity_gib;
}

/* Microbatches that the source does not say were as small as memory asked for. */
static ds_status keep_open_reserved(const val_job *job, ds_plan_ground *ground,
                                    const val_testbed *testbed, val_prediction *p, ds_error *err) {
    val_prediction smaller = *p;
    DS_TRY(keep_reserved(job, ground, testbed, &smaller, err));
    while (is_unfit(&smaller) && smaller.row.mbs > 1) {
        smaller.row.mbs /= 2;
        DS_TRY(keep_reserved(job, ground, testbed, &smaller, err));
    }
    p->peak_gib = smaller.peak_gib;
    p->capacity_gib = smaller.capacity_gib;
    return DS_OK;
}

/* A run that ended out of memory: no time was measured, and none is predicted. */
static ds_status reserve_row(const val_job *job, ds_plan_ground *ground, val_row *row,
                             const val_testbed *testbed, val_prediction *p, ds_error *err) {
    DS_TRY(val_row_complete(row, err));
    DS_TRY(val_check_model(row, testbed, err));
    p->row = *row;
    p->mbs = row->mbs;
    p->vpp = row->vpp;
    return keep_reserved(job, ground, testbed, p, err);
}

/* No step is faster than the peaks of its machine. A profile of measured layers knows the layers
 * that were measured, and others cost next to nothing. */
static ds_status check_measured(const val_job *job, const val_row *row, double seconds,
                                ds_error *err) {
    val_mixed mixed;
    uint32_t kind;
    double peak = 0;
    ds_dtype dtype = strncasecmp(row->precision, "fp32", 4) == 0 ? DS_F32 : DS_F16;
    DS_TRY(val_mixed_read(row, &mixed, err));
    for (uint32_t i = 0; i < mixed.n_nodes; i++) {
        DS_TRY(ds_profiles_find_kind(job->profiles, mixed.node[i]->device, DS_NOWHERE, &kind, err));
        const double *peaks = ds_profiles_kind(job->profiles, kind)->peak_flop_per_s;
        bool tensor = dtype == DS_F32 && peaks[DS_TF32] > 0; /* as PyTorch may multiply f32 */
        peak += (double)row->gpus_per_node * peaks[tensor ? DS_TF32 : dtype];
    }
    if (seconds * peak >= val_row_flop(row)) return DS_OK;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "no layer of that width, tp %lld and mbs %lld was measured on each of the "
                        "row's devices",
                        (long long)row->tp, (long long)row->mbs);
}

static ds_status predict_row(const val_job *job, ds_plan_ground *ground, val_row row,
                             const val_testbed *testbed, val_prediction *p, ds_error *err) {
    bool sized = row.layers && row.hidden && row.heads && row.gbs && row.gpus_per_node;
    bool is_open = !row.mbs;
    if (p->ran_out) return reserve_row(job, ground, &row, testbed, p, err);
    if (testbed->plans && sized && !row.dp && !row.tp && !row.pp && !row.mbs) {
        DS_TRY(time_open_layout(job, ground, &row, testbed, p, err));
    } else if (testbed->tunes && !row.mbs && row.gbs && row.dp) {
        DS_TRY(time_open_row(job, ground, &row, testbed, p, err));
    } else {
        DS_TRY(val_row_complete(&row, err));
        DS_TRY(val_check_model(&row, testbed, err));
        val_mixed mixed;
        if (val_is_mixed(&row)) DS_TRY(val_mixed_read(&row, &mixed, err));
        DS_TRY(time_row(job, ground, &row, testbed, p, err));
        if (val_is_mixed(&row)) return check_measured(job, &row, p->seconds, err);
    }
    if (job->times_only) return DS_OK;
    return is_open ? keep_open_reserved(job, ground, testbed, p, err)
                   : keep_reserved(job, ground, testbed, p, err);
}

/* Bytes of weights, gradients and Adam's states that no layout of the method gets below: the words
 * are of Alpa's names for models, and any other method may share out all of them. */
static double least_state_bytes(const val_row *row) {
    double params = row->params_b * 1e9, n = (double)row->gpus;
    double weight = strncasecmp(row->precision, "fp32", 4) == 0 ? 4 : 2;
    if (strstr(row->model, "data_parallel")) return 16 * params;
    if (strstr(row->model, "zero_2")) return (weight + (16 - weight) / n) * params;
    return 16 * params / n;
}

/* A run that ended out of memory and says too little to be simulated: where the states alone pass
 * what the device has, no more need be known. */
static ds_status bound_row(const val_job *job, val_prediction *p, ds_error *err) {
    uint32_t kind;
    char gpu[64];
    ds_error unsaid;
    val_gpu_name(val_row_gpu(&p->row), gpu, sizeof gpu);
    if (ds_profiles_find_kind(job->profiles, gpu, DS_NOWHERE, &kind, &unsaid) == DS_OK &&
        p->row.params_b > 0 && p->row.gpus > 0) {
        const ds_device_kind *device = ds_profiles_kind(job->profiles, kind);
        double process = (double)(device->reserved.driver_bytes + device->reserved.context_bytes);
        p->peak_gib = (least_state_bytes(&p->row) + process) / GIB;
        p->capacity_gib = (double)device->memory_bytes / GIB;
        if (is_unfit(p)) return DS_OK;
    }
    p->ran_out = false;
    p->peak_gib = p->capacity_gib = 0;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "no measured time");
}

static ds_status predict(const val_job *job, ds_plan_ground *ground, val_prediction *p,
                         ds_error *err) {
    val_row row = p->row;
    val_testbed testbed;
    if (strcmp(row.split, "exclude") == 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the table excludes it");
    if (strcasecmp(row.quality, "suspect_copy") == 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "the table calls it a suspected copy");
    if (*row.outcome && strcasecmp(row.outcome, "ok") != 0)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE,
                            "no measured time: the trial's outcome is %.40s", row.outcome);
    if (val_is_mfu_alone(&row)) return val_predict_mfu(job, row, p, err);
    DS_TRY(val_row_check_cells(&row, err));
    p->ran_out = !job->times_only && !(row.seconds > 0) && strncasecmp(row.memory, "OOM", 3) == 0;
    if (!(row.seconds > 0) && !p->ran_out)
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "no measured time");
    if (val_row_is_mlp(&row)) return time_mlp(job, ground, p, err);
    DS_TRY(val_testbed_for(&row, job->zero_shot, &testbed, err));
    testbed.without = job->without;
    if (!testbed.nic_mb_per_s && !val_is_mixed(&row)) /* the machine is mixed.c's */
        return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "not stated: cluster_id");
    ds_status status = check_dense(&row, &testbed, err);
    val_testbed_complete(&testbed, &row);
    if (status == DS_OK) status = predict_row(job, ground, row, &testbed, p, err);
    return status != DS_OK && p->ran_out ? bound_row(job, p, err) : status;
}

/* ---- all rows ---- */

typedef struct work {
    const val_job *job;
    val_prediction *rows;
    ds_plan_ground **grounds; /* one a worker */
    ds_error *lost;           /* a worker's first row whose models could not be found, if any */
    uint32_t *row_of_slot;
} work;

/* The terms that a list of names, which scenarios were read with, switches off. */
static uint32_t terms_of(const char *names) {
    uint32_t terms = 0;
    for (uint32_t i = 0; names && i < DS_N_TERMS; i++)
        if (strstr(names, ds_term_name(i))) terms |= UINT32_C(1) << i;
    return terms;
}

/* Where measurements of that profile's steps lie. */
static void set_interval(const val_job *job, val_prediction *p) {
    val_testbed testbed;
    uint32_t profile = 0, kind;
    ds_error unsaid;
    char gpu[64];
    if (p->high > 0) return; /* the network's */
    val_gpu_name(p->row.gpu, gpu, sizeof gpu);
    if (val_testbed_for(&p->row, job->zero_shot, &testbed, &unsaid) != DS_OK || !testbed.profile)
        return;
    if (!ds_profiles_means_generic(testbed.profile))
        ds_profiles_find_profile(job->profiles, testbed.profile, DS_NOWHERE, &profile, &unsaid);
    else if (ds_profiles_find_kind(job->profiles, gpu, DS_NOWHERE, &kind, &unsaid) == DS_OK)
        profile = ds_profiles_generic(job->profiles, kind);
    if (!profile) return;
    ds_cost_spread spread = ds_profile_spread(job->profiles, profile);
    ds_arena arena;
    ds_arena_init(&arena);
    if (!(spread.low > 0) && p->share[DS_PART_STEP] > 0)
        spread = ds_profile_step_spread(
            ds_profiles_without(job->profiles, terms_of(job->without), &arena), profile, p->share);
    ds_arena_deinit(&arena);
    p->low = p->seconds * spread.low;
    p->high = p->seconds * spread.high;
}

static void predict_slot(void *context, uint32_t worker, uint32_t slot) {
    work *w = context;
    val_prediction *p = &w->rows[w->row_of_slot[slot]];
    ds_error err;
    if (predict(w->job, w->grounds[worker], p, &err) == DS_OK) {
        set_interval(w->job, p);
        return;
    }
    if (err.code == DS_ERR_IO && w->lost[worker].code == DS_OK) w->lost[worker] = err;
    p->refused = true;
    p->seconds = 0;
    snprintf(p->why, sizeof p->why, "%.*s", (int)sizeof p->why - 1, err.message);
}

#define SLOTS 64

ds_status val_predict(const val_job *job, val_prediction *rows, uint32_t n, ds_error *err) {
    uint32_t slots[SLOTS];
    uint32_t workers = job->n_workers ? job->n_workers : 1, submitted = 0;
    work w = {.job = job, .rows = rows, .row_of_slot = slots};
    w.grounds = ds_xcalloc(workers, sizeof *w.grounds);
    w.lost = ds_xcalloc(workers, sizeof *w.lost);
    for (uint32_t i = 0; i < workers; i++) w.grounds[i] = ds_plan_ground_new();
    ds_pool *pool;
    ds_status status = ds_pool_new(workers, SLOTS, predict_slot, &w, &pool, err);
    for (uint32_t done = 0; status == DS_OK && done < n; done++) {
        for (; submitted < n && submitted < done + SLOTS; submitted++) {
            slots[submitted % SLOTS] = submitted;
            ds_pool_submit(pool, false);
        }
        ds_pool_wait(pool);
    }
    if (status == DS_OK) ds_pool_free(pool);
    for (uint32_t i = 0; i < workers; i++) {
        ds_plan_ground_free(w.grounds[i]);
        if (status == DS_OK && w.lost[i].code != DS_OK)
            status = ds_error_set(err, DS_ERR_IO, DS_NOWHERE, "%s", w.lost[i].message);
    }
    free(w.lost);
    free(w.grounds);
    return status;
}
