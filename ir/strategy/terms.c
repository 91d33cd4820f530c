/* Names of terms, and the set of a scenario. */
#include "ir/strategy/terms.h"

#include "ir/base/str.h"
#include "ir/strategy/scenario.h"

#include <string.h>

static const struct {
    const char *name, *doc;
} terms[] = {
#define DS_X(id, name, doc) {name, doc},
    DS_TERM_MAP(DS_X)
#undef DS_X
};

const char *ds_term_name(uint32_t i) {
    return terms[i].name;
}

const char *ds_term_doc(uint32_t i) {
    return terms[i].doc;
}

static ds_status unknown(const ds_binding *binding, const char *name, ds_error *err) {
    ds_buf known = {0};
    for (uint32_t i = 0; i < DS_N_TERMS; i++)
        ds_buf_printf(&known, "%s%s", i ? ", " : "", terms[i].name);
    ds_status status =
        ds_error_set(err, DS_ERR_NAME, ds_scenario_find(binding->unit, "", "without")->loc,
                     "'without' names no term: '%s'; terms are %s", name, known.text);
    ds_buf_deinit(&known);
    return status;
}

ds_status ds_terms_read(const ds_binding *binding, uint32_t *out, ds_error *err) {
    bool overlap = true;
    DS_TRY(ds_scenario_bool(binding, "", "overlap", &overlap, err));
    *out = overlap ? 0 : DS_TERM_OVERLAP;
    if (!ds_scenario_find(binding->unit, "", "without")) return DS_OK;
    uint32_t n = ds_scenario_text_count(binding->unit, "", "without");
    for (uint32_t k = 0; k < n; k++) {
        const char *name = NULL;
        DS_TRY(ds_scenario_text_at(binding, "", "without", k, &name, err));
        uint32_t i = 0;
        while (i < DS_N_TERMS && strcmp(name, terms[i].name) != 0) i++;
        if (i < DS_N_TERMS)
            *out |= UINT32_C(1) << i;
        else if (strcmp(name, "none") != 0)
            return unknown(binding, name, err);
    }
    return DS_OK;
}
