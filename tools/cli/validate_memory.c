/* distsim validate --memory DATA.csv …: memory that was measured, and what is predicted for it.
 *
 * Every row that has a memory figure becomes a scenario (tools/validate/scenario.h) and is
 * simulated. A figure read off nvidia-smi is what the process took: what the allocator reserved,
 * the context, the communicators and the framework's buffers, but not what the driver keeps to
 * itself. A "GB" of these tables is 1000 MiB, as one reads 47 GB off 47123MiB: their largest, 80
 * GB, is more than a card of 81251 MiB has in GiB. A figure in GiB that PyTorch's allocator reserved
 * (mem_kind "max reserved GiB") has neither context nor communicators. */
#include "sim/run/run.h"
#include "tools/cli/validate.h"
#include "tools/validate/predict.h"
#include "tools/validate/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define GB  (1000.0 * 1048576.0)
#define GIB 1073741824.0

/* ---- one row ---- */

typedef enum outcome { PREDICTED, LEFT_OUT, FAILED } outcome;

typedef struct prediction {
    val_row row;
    outcome outcome;
    ds_error why; /* LEFT_OUT, FAILED */
    double predicted_gb, capacity_gb;
    char what[240]; /* "weight 4.2, …" at the peak, in GB */
} prediction;

typedef DS_VEC(prediction) predictions;

static double unit_of(const val_row *row) {
    return val_row_reserved(row) ? GIB : GB;
}

static void describe(const ds_result *r, int64_t driver_bytes, prediction *p) {
    const ds_mem_class *m = &r->mem.classes[r->fullest];
    size_t n = 0;
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) {
        int64_t beyond = k == DS_MEM_CONTEXT ? driver_bytes : 0;
        double gb = (double)(m->peak_by_category[k] - beyond) / unit_of(&p->row);
        if (gb < 0.05 || n >= sizeof p->what) continue;
        n += (size_t)snprintf(p->what + n, sizeof p->what - n, "%s%s %.1f", n ? ", " : "",
                              ds_mem_category_name(k), gb);
    }
}

static ds_status simulate_memory(const ds_binding *binding, const ds_profiles *profiles,
                                 prediction *p, ds_error *err) {
    ds_sim_options options = {.max_instances = 0};
    ds_result *r;
    DS_TRY(ds_sim_options_read(binding, &options, err));
    DS_TRY(ds_simulate(binding, profiles, &options, &r, err));
    uint32_t kind = r->plan->classes[r->fullest].kind;
    int64_t driver_bytes = ds_profiles_kind(profiles, kind)->reserved.driver_bytes;
    const int64_t *by = r->mem.classes[r->fullest].peak_by_category;
    int64_t beside = val_row_reserved(&p->row) ? ds_mem_beside(by) : driver_bytes;
    p->predicted_gb = (double)(r->metrics.peak_bytes - beside) / unit_of(&p->row);
    p->capacity_gb = (double)(r->metrics.capacity_bytes - beside) / unit_of(&p->row);
    describe(r, driver_bytes, p);
    ds_result_free(r);
    return DS_OK;
}

/* Of sources with a testbed: links have no part in memory, and rows name their framework. */
static const val_testbed anywhere = {
    .model = VAL_GPT, .nvlink_gb_per_s = 300, .nic_mb_per_s = 25000};

static ds_status predict(const validate_arguments *args, const ds_profiles *profiles,
                         const val_testbed *testbed, prediction *p, ds_error *err) {
    ds_load_options load = {.include_dirs = args->common.include_dirs.at,
                            .n_include_dirs = args->common.include_dirs.n};
    ds_buf text = {0};
    ds_unit *unit = NULL;
    ds_binding binding;
    val_scenario(&p->row, testbed, VAL_MEMORY,
                 args->all_microbatches ? 0 : val_memory_microbatches(&p->row), &text);
    ds_status status = val_open(text.text, text.n, &load, &unit, &binding, err);
    if (status == DS_OK) status = simulate_memory(&binding, profiles, p, err);
    if (unit) ds_unit_free(unit);
    ds_buf_deinit(&text);
    return status;
}

/* A figure beyond the memory of the card (a date, say, in the wrong column) is none. */
static bool is_wanted(const validate_arguments *args, const val_row *row) {
    if (args->split ? strcmp(row->split, args->split) != 0 : strcmp(row->split, "exclude") == 0)
        return false;
    return row->memory_gb > 0 || strncasecmp(row->memory, "OOM", 3) == 0;
}

static ds_status check_figure(const ds_profiles *profiles, const val_row *row, ds_error *err) {
    uint32_t kind;
    char name[64];
    val_gpu_name(val_row_gpu(row), name, sizeof name);
    DS_TRY(ds_profiles_find_kind(profiles, name, DS_NOWHERE, &kind, err));
    double capacity_gb = (double)ds_profiles_kind(profiles, kind)->memory_bytes / unit_of(row);
    if (capacity_gb == 0 || row->memory_gb <= capacity_gb) return DS_OK;
    return ds_error_set(err, DS_ERR_DATA, DS_NOWHERE, "%g GB is more than a %s has", row->memory_gb,
                        row->gpu);
}

/* A source that nobody calibrated has its framework's defaults. */
static ds_status complete_unknown(val_row *row, val_testbed *testbed, ds_error *err) {
    DS_TRY(val_stack_testbed(row, testbed, err));
    val_testbed_complete(testbed, row);
    DS_TRY(val_row_complete(row, err));
    return val_check_model(row, testbed, err);
}

static ds_status complete(val_row *row, val_testbed *testbed, ds_error *err) {
    *testbed = anywhere;
    DS_TRY(val_row_check_cells(row, err));
    if (!val_testbed_of(row)) return complete_unknown(row, testbed, err);
    if (strncasecmp(row->model, "gpt", 3) != 0)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "no GPT: %s", row->model);
    DS_TRY(val_row_complete(row, err));
    if (row->ffn != 4 * row->hidden)
        return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "ffn is not 4 hidden");
    if (row->cp != 1) return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE, "cp above 1");
    return DS_OK;
}

static void add_row(const validate_arguments *args, const ds_profiles *profiles, const val_row *row,
                    predictions *out) {
    prediction p = {.row = *row};
    val_testbed testbed;
    ds_error err;
    ds_status status = complete(&p.row, &testbed, &err);
    if (status == DS_OK) status = check_figure(profiles, &p.row, &err);
    p.outcome = status == DS_OK ? PREDICTED : LEFT_OUT;
    if (status == DS_OK) status = predict(args, profiles, &testbed, &p, &err);
    if (status != DS_OK) p.why = err;
    if (status != DS_OK && p.outcome == PREDICTED) p.outcome = FAILED;
    DS_HPUSH(out, p);
}

/* ---- the table ---- */

/* Another row of the same run with as many samples a microbatch or more took less by over 1 GB (the
 * figures are whole): one of the two figures is wrong. */
static const prediction *contradiction(const predictions *all, const prediction *p) {
    for (uint32_t i = 0; i < all->n; i++) {
        const val_row *a = &p->row, *b = &all->at[i].row;
        bool same = a->layers == b->layers && a->hidden == b->hidden && a->dp == b->dp &&
                    a->tp == b->tp && a->pp == b->pp && a->vpp == b->vpp && a->zero == b->zero &&
                    strcmp(a->gpu, b->gpu) == 0 && strcmp(a->precision, b->precision) == 0 &&
                    strcmp(a->recompute, b->recompute) == 0;
        if (!same || !(b->memory_gb > 0) || val_row_reserved(a)) continue;
        if (b->mbs >= a->mbs && b->memory_gb < a->memory_gb - 1) return &all->at[i];
    }
    return NULL;
}

/* "chronicles-prequel.md:607" of "owner/repository folder/chronicles-prequel.md:607"; without a
 * source the line of the table. */
static const char *name_of(const val_row *row, char *room, size_t n) {
    const char *slash = strrchr(row->ref, '/');
    if (slash) return slash + 1;
    if (*row->ref) return row->ref;
    snprintf(room, n, "line %u", row->line);
    return room;
}

static double error_of(const prediction *p) {
    return p->predicted_gb / p->row.memory_gb - 1;
}

static void print_row(const predictions *all, const prediction *p) {
    const val_row *r = &p->row;
    const prediction *other = contradiction(all, p);
    char room[32];
    printf("| %s | %lld x %lld | %lld | %lld %lld %lld | %lld | ", name_of(r, room, sizeof room),
           (long long)r->layers, (long long)r->hidden, (long long)r->heads, (long long)r->dp,
           (long long)r->tp, (long long)r->pp, (long long)r->mbs);
    if (r->memory_gb > 0)
        printf("%g | %.1f | %+.1f %% | %s | %s", r->memory_gb, p->predicted_gb, 100 * error_of(p),
               r->split, p->what);
    else
        printf("OOM | %.1f | %s | %s | %s", p->predicted_gb,
               p->predicted_gb > p->capacity_gb ? "does not fit" : "fits", r->split, p->what);
    if (other)
        printf("; but %s: %g", name_of(&other->row, room, sizeof room), other->row.memory_gb);
    printf(" |\n");
}

static void print_sum(const predictions *all, const char *split) {
    double sum = 0, bias = 0, worst = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const prediction *p = &all->at[i];
        if (p->outcome != PREDICTED || !(p->row.memory_gb > 0)) continue;
        if (split && strcmp(p->row.split, split) != 0) continue;
        double error = error_of(p);
        n++;
        sum += fabs(error);
        bias += error;
        if (fabs(error) > fabs(worst)) worst = error;
    }
    if (n)
        printf("%s: n = %u, mean |error| %.1f %%, mean error %+.1f %%, largest %+.1f %%\n",
               split ? split : "all", n, 100 * sum / n, 100 * bias / n, 100 * worst);
}

/* Rows that ran out of memory, and how many of them the prediction lets run. */
static void print_ran_out(const predictions *all) {
    uint32_t n = 0, fit = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const prediction *p = &all->at[i];
        if (p->outcome != PREDICTED || p->row.memory_gb > 0) continue;
        n++;
        fit += p->predicted_gb <= p->capacity_gb;
    }
    if (n)
        printf("ran out of memory: %u row%s, said to fit: %u (%.1f %%)\n", n, n > 1 ? "s" : "", fit,
               100.0 * fit / n);
}

/* Rows without a prediction, by reason. */
static void print_rest(const predictions *all, outcome which, const char *title) {
    for (uint32_t i = 0; i < all->n; i++) {
        const prediction *p = &all->at[i];
        bool first = p->outcome == which;
        for (uint32_t k = 0; k < i && first; k++)
            first = all->at[k].outcome != which || strcmp(all->at[k].why.message, p->why.message);
        if (!first) continue;
        uint32_t n = 0;
        for (uint32_t k = i; k < all->n; k++)
            n += all->at[k].outcome == which && !strcmp(all->at[k].why.message, p->why.message);
        char room[32];
        printf("%s: %u row%s (%s%s): %s\n", title, n, n > 1 ? "s" : "",
               name_of(&p->row, room, sizeof room), n > 1 ? " …" : "", p->why.message);
    }
}

static void print_table(const predictions *all) {
    static const char *const splits[] = {"calib", "val", "aux"};
    printf("| row | layers x hidden | heads | dp tp pp | mbs | measured, GB | predicted | error | "
           "split | at the peak, GB |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < all->n; i++)
        if (all->at[i].outcome == PREDICTED) print_row(all, &all->at[i]);
    printf("\n");
    print_sum(all, NULL);
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) print_sum(all, splits[i]);
    print_ran_out(all);
    print_rest(all, LEFT_OUT, "left out");
    print_rest(all, FAILED, "failed");
}

int validate_memory(const validate_arguments *args, const ds_profiles *profiles, const char *file) {
    ds_csv csv;
    ds_error err;
    predictions all = {0};
    if (ds_csv_read(file, &csv, &err) != DS_OK) return cli_fail(NULL, &err);
    for (uint32_t i = 0; i < csv.rows.n; i++) {
        val_row row;
        val_row_read(&csv, i, &row);
        if (is_wanted(args, &row)) add_row(args, profiles, &row, &all);
    }
    print_table(&all);
    free(all.at);
    ds_csv_deinit(&csv);
    return 0;
}
