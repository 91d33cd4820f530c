/* Overrides of single ops: `"net/l[*]/fc1" = on @v [n: x, k: [y, z]]` in strategy { ops { … } }.
 *
 * A pattern matches paths of ops (func/loop[index]/call/name): names in which `*` is any text and
 * `?` any character, and after a name the turn of a loop, `[3]` or `[*]`; '.' separates like '/'.
 * Whether a pattern matches an op is checked by passes, which know the paths. */
#include "ir/verify/internal.h"

#include <ctype.h>
#include <string.h>

/* ---- patterns ---- */

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || (c && strchr("_.*?", c));
}

/* Takes the text after a turn's `[`; returns the text after the `]`, or NULL if there is no
 * turn. */
static const char *skip_turn(const char *at) {
    if (*at == '*') {
        at++;
    } else {
        if (!isdigit((unsigned char)*at)) return NULL;
        while (isdigit((unsigned char)*at)) at++;
    }
    return *at == ']' ? at + 1 : NULL;
}

/* The fault of a pattern; NULL: none. */
static const char *pattern_fault(const char *at) {
    if (!*at) return "it is empty";
    for (;; at++) {
        if (!is_name_char(*at)) break;
        while (is_name_char(*at)) at++;
        while (*at == '[')
            if (!(at = skip_turn(at + 1))) return "brackets hold a turn, as in '[3]', or '[*]'";
        if (!*at) return NULL;
        if (*at != '/' && *at != '.') break; /* after a turn a dot separates too */
    }
    return !*at || *at == '/' || *at == '['
               ? "between its '/' stand names"
               : "it is made of names (with '*' and '?'), '/' and turns such as '[3]' or '[*]'";
}

void ds_verify__pattern(ds_checker *ck, const char *pattern, ds_loc loc) {
    const char *fault = pattern ? pattern_fault(pattern) : NULL;
    if (fault)
        ds_verify__error(ck, DS_ERR_VALUE, loc, NULL, "\"%s\" is no pattern of op paths: %s",
                         pattern, fault);
}

/* ---- placements ---- */

static const char *axes_text(ds_checker *ck, const ds_mesh *mesh) {
    ds_buf axes = {0};
    for (uint32_t i = 0; i < mesh->n_axes; i++)
        ds_buf_printf(&axes, "%s%s", i ? ", " : "", mesh->axes[i].name);
    const char *text = ds_arena_strdup(&ck->diags->arena, axes.n ? axes.text : "none");
    ds_buf_deinit(&axes);
    return text;
}

typedef struct override {
    ds_checker *ck;
    const ds_attr *attr;
    const ds_mesh *mesh;
    ds_map taken; /* axis → 1 + index of the factor that the axis splits */
} override;

static bool check_on_mesh(const override *o, const char *axis, ds_loc loc) {
    if (ds_verify__mesh_has_axis(o->mesh, axis)) return true;
    ds_verify__error(o->ck, DS_ERR_NAME, loc, NULL, "mesh @%s has no axis '%s'; it has %s",
                     o->attr->place.name, axis, axes_text(o->ck, o->mesh));
    return false;
}

static void check_axis(override *o, uint32_t factor, const char *axis, ds_loc loc) {
    if (!check_on_mesh(o, axis, loc)) return;
    const uint64_t *before = ds_map_find(&o->taken, DS_KEY(axis));
    if (ds_verify__is_fixed(&o->attr->place, axis))
        ds_verify__error(o->ck, DS_ERR_SHARDING, loc, NULL,
                         "'%s' is fixed to one coordinate by %s: it cannot split '%s'", axis,
                         ds_verify__place_text(o->ck, &o->attr->place),
                         o->attr->items[factor].name);
    else if (before)
        ds_verify__error(o->ck, DS_ERR_SHARDING, loc, NULL,
                         "the axis '%s' splits the factor '%s' already", axis,
                         o->attr->items[*before - 1].name);
    ds_map_put(&o->taken, DS_KEY(axis), factor + 1);
}

static void check_factor(override *o, uint32_t i) {
    const ds_attr *items = o->attr->items, *item = &items[i];
    for (uint32_t j = 0; j < i; j++)
        if (items[j].name == item->name) {
            ds_verify__error(o->ck, DS_ERR_NAME, item->loc, NULL, "the factor '%s' is given twice",
                             item->name);
            return;
        }
    if (item->kind == DS_ATTR_WORD) check_axis(o, i, item->word, item->loc);
    for (uint32_t k = 0; k < item->n_items; k++)
        check_axis(o, i, item->items[k].word, item->items[k].loc);
}

void ds_verify__override(ds_checker *ck, const ds_module *module, const ds_attr *attr) {
    ds_verify__pattern(ck, attr->name, attr->loc);
    if (!attr->is_override || attr->place.kind != DS_PLACE_MESH) {
        ds_verify__error(ck, DS_ERR_TYPE, attr->loc, NULL,
                         "\"%s\" must be a mesh and the factors that its axes split, as in "
                         "'on @v [n: x, k: y]'",
                         attr->name);
        return;
    }
    override o = {.ck = ck, .attr = attr, .mesh = ds_find_mesh(module, attr->place.name)};
    ds_loc loc = attr->place.loc.line ? attr->place.loc : attr->loc;
    if (!o.mesh) {
        ds_verify__unknown(ck, module, DS_ITEM_MESH, loc, attr->place.name);
        return;
    }
    ds_map_init(&o.taken);
    for (uint32_t i = 0; i < attr->place.n_coords; i++)
        check_on_mesh(&o, attr->place.coords[i].axis, loc);
    for (uint32_t i = 0; i < attr->n_items; i++) check_factor(&o, i);
    ds_map_deinit(&o.taken);
}
