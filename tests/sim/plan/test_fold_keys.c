/* What templates and devices are kept for: params that nothing of a model or topology mentions are
 * in no key, wherever they stand. */
#include "ir/strategy/strategy.h"
#include "search/compose/fold.h"
#include "tests/support/sweep.h"

#include <criterion/criterion.h>

/* Model, topology and what varies in one file. `wide` follows from `half`. */
static const char text[] =
    "dir 1\n"
    "param mb = 8, name = 1, batch = 8 * mb, half = 32, wide = 2 * half, layers = 6, nodes = 1, "
    "speed "
    "= 100\n"
    "func @f(%x: f32[batch@dp, wide]) -> f32[batch@dp, wide] {\n"
    "  %y = for l in 0..layers carry (%h = %x) {\n"
    "    weight %w : f32[wide, wide]\n"
    "    %a = matmul(%h, %w)\n"
    "    %r = relu(%a)\n"
    "    yield %r\n  }\n  return %y\n}\n"
    "topology @box { device gpu[2 * nodes] : \"A100-SXM4-80GB\"\n"
    "  switch s\n  link gpu[i] -- s : speed GB/s, 1 us for i in 0..2 * nodes }\n"
    "degrade gpu[0] -- s bandwidth = 100 / speed\n"
    "scenario { model = @f, on = @box, cost = fitted, train { loss = mse, optimizer = adam }\n"
    "  strategy { dp = 2, microbatches = mb } }\n"
    "sweep { mb in [8, 16], name in [1, 2] }\n";

/* The key of devices once the step with that param has its template. */
static uint64_t find(ds_fold *fold, sweep_case *c, const char *name, const char *value) {
    const ds_setting setting = {name, value};
    const ds_sim_options options = {.cost_mode = DS_COST_FITTED, .trust_passes = true};
    const ds_items items = {0};
    ds_binding binding;
    ds_train train;
    ds_strategy strategy;
    ds_template *t;
    cr_assert_eq(ds_bind(c->unit, &setting, 1, &binding, &c->err), DS_OK, "%s", c->err.message);
    cr_assert_eq(ds_train_read(&binding, &train, &c->err), DS_OK, "%s", c->err.message);
    cr_assert_eq(ds_strategy_read(&binding, &strategy, &c->err), DS_OK, "%s", c->err.message);
    ds_fold_step step = {.binding = &binding,
                         .profiles = c->profiles,
                         .options = &options,
                         .train = &train,
                         .strategy = &strategy,
                         .items = &items,
                         .n_chunks = 1};
    cr_assert_eq(ds_fold_template(fold, &step, &t, &c->err), DS_OK, "%s", c->err.message);
    free(step.turns);
    return fold->topo_key;
}

static ds_fold *new_fold(void) {
    ds_fold *fold = ds_xcalloc(1, sizeof *fold);
    ds_map_init(&fold->templates);
    ds_map_init(&fold->skeletons);
    return fold;
}

Test(fold_keys, are_of_what_is_mentioned) {
    /* degraded links are none that templates are made for */
    static const struct {
        const char *name, *value;
        bool same_template, same_devices;
    } cases[] = {{"mb", "16", true, true},     {"name", "2", true, true},
                 {"layers", "9", true, true},  {"half", "64", false, true},
                 {"nodes", "2", false, false}, {"speed", "200", true, false}};
    ds_fold *fold = new_fold();
    sweep_case c;
    sweep_open_text(&c, text, NULL);
    cr_assert_eq(c.status, DS_OK, "%s", c.err.message);
    uint64_t first = find(fold, &c, "mb", "8");
    cr_expect_eq(fold->all.n, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t n = fold->all.n; /* of other devices all is forgotten first */
        bool same_devices = find(fold, &c, cases[i].name, cases[i].value) == first;
        cr_expect_eq(same_devices, cases[i].same_devices, "%s", cases[i].name);
        uint32_t made = same_devices ? fold->all.n - n : fold->all.n;
        cr_expect_eq(made == 0, cases[i].same_template, "%s", cases[i].name);
    }
    ds_fold_deinit(fold);
    free(fold);
    sweep_close(&c);
}
