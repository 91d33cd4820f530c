/* The sweep block, one entry a line. */
#include "ir/lang/lang.h"
#include "ir/lang/print_internal.h"

static void print_domain(ds_printer *p, const ds_sweep_entry *entry) {
    switch (entry->domain) {
    case DS_DOMAIN_LIST:
        ds_printer_value(p, &entry->list);
        break;
    case DS_DOMAIN_DIVISORS:
        ds_printer_put(p, "divisors(");
        ds_printer_expr(p, entry->a);
        ds_printer_put(p, ")");
        break;
    case DS_DOMAIN_POWERS:
        ds_printer_put(p, "powers_of_two(");
        ds_printer_expr(p, entry->a);
        ds_printer_put(p, ", ");
        ds_printer_expr(p, entry->b);
        ds_printer_put(p, ")");
        break;
    case DS_DOMAIN_RANGE:
        ds_printer_expr(p, entry->a);
        ds_printer_put(p, entry->closed ? "..=" : "..");
        ds_printer_expr(p, entry->b);
        if (!DS_HAS_EXPR(entry->step)) break;
        ds_printer_put(p, " step ");
        ds_printer_expr(p, entry->step);
        break;
    }
}

static void print_entry(ds_printer *p, const ds_sweep_entry *entry) {
    static const char *const words[] = {
        [DS_SWEEP_WHERE] = "where ",       [DS_SWEEP_MINIMIZE] = "minimize ",
        [DS_SWEEP_MAXIMIZE] = "maximize ", [DS_SWEEP_SUBJECT] = "subject to ",
        [DS_SWEEP_PRICE] = "price ",       [DS_SWEEP_OPTION] = ""};
    if (entry->kind != DS_SWEEP_DIM) ds_printer_put(p, words[entry->kind]);
    if (entry->name) ds_printer_put(p, entry->name);
    if (entry->kind == DS_SWEEP_DIM) {
        ds_printer_put(p, " in ");
        print_domain(p, entry);
    } else if (entry->kind == DS_SWEEP_OPTION) {
        ds_printer_put(p, entry->on ? " = on" : " = off");
    } else if (DS_HAS_EXPR(entry->a)) {
        ds_printer_expr(p, entry->a);
    }
    if (entry->unit == DS_UNIT_NONE) return;
    ds_printer_put(p, " ");
    ds_printer_put(p, ds_unit_text(entry->unit));
}

void ds_printer_sweep(ds_printer *p, const ds_sweep *sweep) {
    ds_printer_begin(p, &sweep->trivia);
    ds_printer_put(p, "sweep");
    ds_printer_open(p, &sweep->trivia);
    for (uint32_t k = 0; k < sweep->n_entries; k++) {
        ds_printer_begin(p, &sweep->entries[k].trivia);
        print_entry(p, &sweep->entries[k]);
        ds_printer_end(p, &sweep->entries[k].trivia);
    }
    ds_printer_close(p, &sweep->dangling);
    ds_printer_end(p, &sweep->trivia);
}

void ds_print_sweep_content(const ds_module *module, ds_buf *out) {
    ds_printer p = {.exprs = &module->unit->exprs, .out = out, .plain = true};
    for (uint32_t i = 0; i < module->sweeps.n; i++) ds_printer_sweep(&p, &module->sweeps.at[i]);
}
