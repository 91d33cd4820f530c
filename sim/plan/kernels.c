/* The kernels that a framework's stack launches for an op (ir/ops/kernels.h).
 *
 * A generic profile holds curves of single kernels, and the stack says which kernels there are. The
 * constants of every other profile were fitted to steps or operations of a stack, so they stand for
 * that stack's kernels already, and the catalogue's peaks are bounds: there an op is one kernel. */
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/terms.h"
#include "sim/plan/internal.h"

/* The stack of a part of the model: by default that of the whole. */
static ds_status read_part(const ds_builder *b, const char *key, const char *word,
                           ds_kernel_stack *out, ds_error *err) {
    DS_TRY(ds_scenario_text(b->binding, "", key, &word, err));
    if (ds_kernel_stack_parse(word, out)) return DS_OK;
    return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "%s = %s: no such stack", key, word);
}

ds_status ds_plan__find_kernels(ds_builder *b, ds_error *err) {
    const char *word = "ops";
    DS_TRY(ds_scenario_text(b->binding, "", "kernels", &word, err));
    DS_TRY(ds_scenario_bool(b->binding, "", "cuda_graphs", &b->plan->cuda_graphs, err));
    DS_TRY(ds_scenario_text(b->binding, "", "attention_kernel", &b->plan->attention_kernel, err));
    const ds_preset *preset = ds_preset_of(b->binding, "", "kernels");
    if (preset) word = preset->value;
    if (!ds_kernel_stack_parse(word, &b->plan->stack))
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE, "kernels = %s: no such stack", word);
    DS_TRY(read_part(b, "loss_kernels", word, &b->plan->loss, err));
    DS_TRY(read_part(b, "norm_kernels", word, &b->plan->norms, err));
    bool counts = ds_profiles_has(b->profiles, DS_TERM_KERNELS);
    b->plan->kernels = counts ? b->plan->stack : DS_KERNELS_OPS;
    int64_t chunks = 1;
    DS_TRY(ds_scenario_int(b->binding, "strategy", "virtual_stages", &chunks, err));
    b->plan->host_waits = ds_kernel_host_waits(b->plan->stack) && chunks == 1 &&
                          !b->plan->cuda_graphs && ds_profiles_has(b->profiles, DS_TERM_HOST);
    return DS_OK;
}

ds_kernel_stack ds_plan_kernels_of(const ds_plan *plan, const ds_op *op) {
    bool counts = plan->kernels != DS_KERNELS_OPS;
    return counts && ds_kernel_is_loss(op) ? plan->loss : plan->kernels;
}

void ds_plan__kernels_deinit(ds_builder *b) {
    ds_map_deinit(&b->kernels);
    ds_map_deinit(&b->kernels_of);
}

const ds_kernel *ds_plan__kernel(ds_builder *b, const ds_site *site) {
    if (b->plan->kernels == DS_KERNELS_OPS) return NULL;
    uint64_t *known = ds_map_slot(&b->kernels_of, DS_KEY(site->ctx->func));
    if (!*known)
        ds_kernels_find(site->ctx->func, b->plan->kernels, b->plan->loss, &b->plan->arena,
                        &b->kernels);
    *known = 1;
    const uint64_t *found = ds_map_find(&b->kernels, DS_KEY(site->op));
    return found ? (const ds_kernel *)(uintptr_t)*found : NULL;
}

const ds_kernel *ds_plan__kernel_on(ds_builder *b, const ds_site *site, uint32_t device) {
    if (!ds_profile_is_generic(b->profiles, b->plan->profile_of[device])) return NULL;
    return ds_plan__kernel(b, site);
}
