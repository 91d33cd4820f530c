/* Statements of other machines, read. */
#include "ir/strategy/what_if.h"

#include "ir/base/str.h"
#include "ir/base/units.h"
#include "ir/strategy/scenario.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
#define DS_X(id, name, doc) name,
    DS_RESOURCE_MAP(DS_X)
#undef DS_X
};

const char *ds_resource_name(ds_resource resource) {
    return names[resource];
}

static const char *skip(const char *at) {
    return at + strspn(at, " \t");
}

/* A name of a node, or nothing; false: too long. */
static bool take_name(const char **at, char name[64]) {
    const char *from = skip(*at);
    size_t n = strspn(from, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (n >= 64) return false;
    memcpy(name, from, n);
    name[n] = '\0';
    *at = skip(from + n);
    return true;
}

/* "* 1.5" and nothing after it. */
static bool take_factor(const char *at, int64_t *ppb) {
    if (*at != '*') return false;
    char *end;
    double value = strtod(skip(at + 1), &end);
    if (end == skip(at + 1) || *skip(end) || !(value >= 1e-6 && value <= 1e6)) return false;
    *ppb = (int64_t)(value * (double)DS_WHAT_IF_WHOLE + 0.5);
    return true;
}

static bool take_link(const char *text, const char *at, ds_what_if *out) {
    ds_link_what_if link = {.text = text};
    if (out->n_links == DS_WHAT_IF_LINKS || !take_name(&at, link.a)) return false;
    if (*link.a && strncmp(at, "--", 2) == 0) {
        at += 2;
        if (!take_name(&at, link.b) || !*link.b) return false;
    }
    if (!take_factor(at, &link.ppb)) return false;
    out->links[out->n_links++] = link;
    return true;
}

static bool take(const char *text, ds_what_if *out) {
    char name[64];
    const char *at = text;
    int64_t ppb;
    if (!take_name(&at, name)) return false;
    if (strcmp(name, "link") == 0) return take_link(text, at, out);
    for (int i = 0; i < DS_N_RESOURCES; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        if (!take_factor(at, &ppb)) return false;
        out->ppb[i] = ds_what_if_times(out->ppb[i], ppb);
        return out->ppb[i] > 0;
    }
    return false;
}

ds_status ds_what_if_read(const ds_binding *binding, ds_what_if *out, ds_error *err) {
    *out = (ds_what_if){0};
    for (int i = 0; i < DS_N_RESOURCES; i++) out->ppb[i] = DS_WHAT_IF_WHOLE;
    const ds_attr *said = ds_scenario_find(binding->unit, "", "what_if");
    uint32_t n = said ? ds_scenario_text_count(binding->unit, "", "what_if") : 0;
    for (uint32_t k = 0; k < n; k++) {
        const char *text = NULL;
        DS_TRY(ds_scenario_text_at(binding, "", "what_if", k, &text, err));
        if (!take(text, out))
            return ds_error_set(err, DS_ERR_VALUE, said->loc,
                                "what_if: '%s' is none of \"compute * 1.5\", \"memory * 2\", "
                                "\"host * 2\", \"latency * 0.5\", \"link nic * 2\", \"link "
                                "gpu--nvswitch * 2\" and \"link * 2\", with a number from 0.000001 "
                                "to 1000000, and at most %d of links",
                                text, DS_WHAT_IF_LINKS);
    }
    return DS_OK;
}

bool ds_what_if_means(const ds_link_what_if *link, const char *from, const char *to) {
    if (*link->b)
        return (strcmp(link->a, from) == 0 && strcmp(link->b, to) == 0) ||
               (strcmp(link->a, to) == 0 && strcmp(link->b, from) == 0);
    return !*link->a || strcmp(link->a, from) == 0 || strcmp(link->a, to) == 0;
}

bool ds_what_if_is_plain(const ds_what_if *what_if) {
    for (int i = 0; i < DS_N_RESOURCES; i++)
        if (what_if->ppb[i] != DS_WHAT_IF_WHOLE) return false;
    return true;
}

static int64_t narrow(ds_i128 amount) {
    return amount > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)amount;
}

int64_t ds_what_if_times(int64_t amount, int64_t ppb) {
    if (ppb == DS_WHAT_IF_WHOLE) return amount; /* also above 2^62 */
    return narrow(((ds_i128)amount * ppb + DS_WHAT_IF_WHOLE / 2) / DS_WHAT_IF_WHOLE);
}

int64_t ds_what_if_over(int64_t amount, int64_t ppb) {
    return narrow(((ds_i128)amount * DS_WHAT_IF_WHOLE + ppb / 2) / ppb);
}
