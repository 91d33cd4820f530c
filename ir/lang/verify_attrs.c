/* Attributes of what is not in the op table: for, local, call, weight, and function arguments. */
#include "ir/lang/verify_internal.h"

#include <string.h>

typedef struct spec_entry {
    const char *name, *type; /* in the diagnostics' arena */
} spec_entry;

/* Reads "name:str stream:str cost:quantity" (see ir/ops/ops.h) entry by entry; false at the end. */
static bool next_entry(ds_checker *ck, const char **at, spec_entry *out) {
    *at += strspn(*at, " ");
    if (!**at) return false;
    size_t n = strcspn(*at, " "), name = strcspn(*at, ":");
    size_t type = name < n ? strcspn(*at + name + 1, "=! ") : 0;
    out->name = ds_arena_strndup(&ck->diags->arena, *at, name < n ? name : n);
    out->type = ds_arena_strndup(&ck->diags->arena, *at + name + (name < n), type);
    *at += n;
    return true;
}

static bool is_text(const ds_checker *ck, const ds_attr *attr) {
    if (attr->kind == DS_ATTR_WORD) return true;
    if (attr->kind != DS_ATTR_EXPR) return false;
    ds_expr_kind kind = ds_expr_at(&ck->unit->exprs, attr->expr)->kind;
    return kind == DS_EXPR_STR || kind == DS_EXPR_PARAM;
}

static void check_kind(ds_checker *ck, const ds_attr *attr, const char *type) {
    if (strcmp(type, "str") == 0 && !is_text(ck, attr))
        ds_verify__error(ck, DS_ERR_TYPE, attr->loc, NULL,
                         "the attribute '%s' must be a word or a \"text\"", attr->name);
    else if (strcmp(type, "quantity") == 0 &&
             (attr->kind != DS_ATTR_QUANTITY || ds_unit_dimension(attr->unit) != 'T'))
        ds_verify__error(ck, DS_ERR_TYPE, attr->loc, NULL,
                         "the attribute '%s' must be a time, as in '3 us'", attr->name);
}

void ds_verify__attrs(ds_checker *ck, const ds_attr *attrs, uint32_t n, const char *spec,
                      const char *what) {
    for (uint32_t i = 0; i < n; i++) {
        ds_names names = {0};
        ds_buf list = {0};
        spec_entry entry;
        bool found = false;
        for (const char *at = spec; !found && next_entry(ck, &at, &entry);) {
            found = strcmp(entry.name, attrs[i].name) == 0 && !attrs[i].quoted_name;
            DS_PUSH(&ck->diags->arena, &names.all, entry.name);
            ds_buf_printf(&list, "%s%s", list.n ? ", " : "", entry.name);
        }
        if (found)
            check_kind(ck, &attrs[i], entry.type);
        else
            ds_verify__error(ck, DS_ERR_NAME, attrs[i].loc,
                             ds_verify__hint(ck, "", attrs[i].name, names.all.at, names.all.n),
                             "%s has no attribute '%s'; it takes %s", what, attrs[i].name,
                             list.text);
        ds_buf_deinit(&list);
    }
}
