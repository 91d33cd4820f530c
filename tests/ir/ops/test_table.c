/* The table itself: every line complete, names unique, rules and attribute specs well formed. */
#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <string.h>

static const ds_op_desc *line(ds_opcode code) {
    const ds_op_desc *desc = ds_op_desc_of(code);
    cr_assert_not_null(desc);
    return desc;
}

#define EACH_OP(code) (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++)

Test(ops_table, names) {
    for
        EACH_OP(code) {
            cr_expect_eq(ds_op_by_name(line(code)->name), code, "%s is not unique",
                         line(code)->name);
            cr_expect_str_eq(ds_op_name(code), line(code)->name);
        }
    cr_expect_eq(ds_op_by_name("matmull"), DS_OP_INVALID);
    cr_expect_eq(ds_op_by_name("for"), DS_OP_INVALID);
    cr_expect_null(ds_op_desc_of(DS_OP_CALL));
    cr_expect_null(ds_op_desc_of(DS_OP_COUNT));
    cr_expect_str_eq(ds_op_name(DS_OP_RETURN), "return");
    cr_expect_str_eq(ds_op_name(DS_OP_COUNT + 5), "invalid");
}

Test(ops_table, every_line_is_complete) {
    for
        EACH_OP(code) {
            const ds_op_desc *desc = line(code);
            size_t n = strlen(desc->doc ? desc->doc : "");
            cr_expect(n > 3 && desc->doc[n - 1] == '.', "%s has no sentence", desc->name);
            cr_expect(desc->family && *desc->family, "%s has no family", desc->name);
            cr_expect(desc->rule || desc->rule_of || desc->infer, "%s has no rule", desc->name);
            cr_expect(desc->dtypes || (desc->flags & DS_OPF_COLLECTIVE), "%s has no dtypes",
                      desc->name);
            cr_expect(desc->min_in <= desc->max_in && desc->min_out <= desc->max_out, "%s",
                      desc->name);
            cr_expect(!(desc->flags & DS_OPF_COLLECTIVE) ==
                          (strcmp(desc->family, "collective") != 0),
                      "%s", desc->name);
            uint32_t linear =
                desc->flags & (DS_OPF_LINEAR | DS_OPF_MULTILINEAR | DS_OPF_LINEAR_FIRST);
            cr_expect_eq(linear & (linear - 1), 0, "%s is linear in two ways", desc->name);
            cr_expect_eq(desc->eval == NULL, (desc->flags & DS_OPF_COLLECTIVE) != 0, "%s",
                         desc->name);
        }
}

Test(ops_table, rules_parse) {
    for
        EACH_OP(code) {
            const ds_op_desc *desc = line(code);
            if (!desc->rule) continue;
            ds_rule rule, again;
            ds_error err = {0};
            cr_expect_eq(ds_rule_parse(desc->rule, DS_NOWHERE, &rule, &err), DS_OK, "%s",
                         err.message);
            cr_expect(rule.n_in >= 1 && rule.n_out >= 1, "%s", desc->name);
            ds_buf text = {0};
            ds_rule_print(&rule, &text);
            cr_expect_eq(ds_rule_parse(text.text, DS_NOWHERE, &again, &err), DS_OK, "%s",
                         err.message);
            cr_expect_eq(memcmp(&rule, &again, sizeof rule), 0, "%s reads back differently",
                         text.text);
            ds_buf_deinit(&text);
        }
}

static void refuses(const char *text, ds_status code, const char *part) {
    ds_rule rule;
    ds_error err = {0};
    cr_expect_eq(ds_rule_parse(text, DS_NOWHERE, &rule, &err), code, "%s: %s", text, err.message);
    cr_expect(strstr(err.message, part), "%s: %s", text, err.message);
}

Test(ops_table, rule_syntax) {
    refuses("a b", DS_ERR_SYNTAX, "'->'");
    refuses("", DS_ERR_SYNTAX, "'->'");
    refuses("a -> ?", DS_ERR_SYNTAX, "column 6");
    refuses("(a -> a", DS_ERR_SYNTAX, "')'");
    refuses("() -> a", DS_ERR_SYNTAX, "a factor name");
    refuses("a a -> a", DS_ERR_SYNTAX, "twice");
    refuses("(a a) -> a", DS_ERR_SYNTAX, "twice");
    refuses("a -> a; b: sum", DS_ERR_NAME, "'b'");
    refuses("a -> a; a: whol", DS_ERR_NAME, "'whole'");
    refuses("a -> a; a sum", DS_ERR_SYNTAX, "':'");
    refuses("a -> a; a: sum x", DS_ERR_SYNTAX, "the end");
    refuses("a -> a -> a", DS_ERR_SYNTAX, "the end");
    refuses("a, -b -> a", DS_ERR_SYNTAX, "");
    refuses("abcdefgh -> a", DS_ERR_LIMIT, "longer than 7");
    refuses("(a b c d e) -> a", DS_ERR_LIMIT, "more than 4");
    refuses("a b c d e f g h i -> a", DS_ERR_LIMIT, "more than 8 dims");
    refuses("a,b,c,d,e,f,g,h,i -> a", DS_ERR_LIMIT, "more than 8 terms");
    refuses("a b c d e f g h, i j k l m n o p, q -> a", DS_ERR_LIMIT, "more than 16 factors");
}

Test(ops_table, rule_meaning) {
    ds_rule rule;
    cr_assert_eq(
        ds_rule_parse("... (h d), * 1 h->... d h;d:whole,...:sum", DS_NOWHERE, &rule, NULL), DS_OK);
    cr_expect(rule.n_in == 2 && rule.n_out == 1 && rule.n_factors == 2);
    cr_expect(rule.in[0].leading && rule.in[0].n == 1 && rule.in[0].dims[0].n == 2);
    cr_expect(rule.in[1].n == 3 && rule.in[1].dims[0].any && rule.in[1].dims[1].n == 0);
    cr_expect(rule.kinds[0] == DS_FACTOR_PAR && rule.kinds[1] == DS_FACTOR_WHOLE);
    cr_expect_eq(rule.leading_kind, DS_FACTOR_SUM);
    /* Summed without being told, as in einsum; a scalar result. */
    cr_assert_eq(ds_rule_parse("a b ->", DS_NOWHERE, &rule, NULL), DS_OK);
    cr_expect(rule.kinds[0] == DS_FACTOR_SUM && rule.n_out == 1 && rule.out[0].n == 0);
}

Test(ops_table, shapes) {
    ds_shape shape = {.dtype = DS_BF16, .rank = 2, .dims = {3, 5}};
    int64_t n;
    cr_expect(ds_shape_elements(&shape, &n, NULL) == DS_OK && n == 15);
    cr_expect(ds_shape_bytes(&shape, &n, NULL) == DS_OK && n == 30);
    shape.dtype = DS_F4E2M1;
    cr_expect(ds_shape_bytes(&shape, &n, NULL) == DS_OK && n == 8);
    shape.dims[0] = shape.dims[1] = INT64_C(1) << 32;
    cr_expect_eq(ds_shape_elements(&shape, &n, NULL), DS_ERR_OVERFLOW);
    shape.dims[1] = INT64_C(1) << 30;
    shape.dtype = DS_F64;
    cr_expect_eq(ds_shape_bytes(&shape, &n, NULL), DS_ERR_OVERFLOW);
}

Test(ops_table, in_place) {
    static const struct {
        const char *text;
        uint32_t want[4];
    } cases[] = {{NULL, {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
                 {"0", {0, 0, 0, 0}},
                 {"0, -", {0, UINT32_MAX, UINT32_MAX, UINT32_MAX}},
                 {"-, 2, -", {UINT32_MAX, 2, UINT32_MAX, UINT32_MAX}},
                 {"k", {0, 1, 2, 3}},
                 {"0, k+1", {0, 2, 3, 4}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ds_op_desc desc = {.inplace = cases[i].text};
        for (uint32_t r = 0; r < 4; r++)
            cr_expect_eq(ds_op_inplace(&desc, r), cases[i].want[r], "%s of result %u",
                         cases[i].text, r);
    }
    cr_expect_eq(ds_op_inplace(NULL, 0), UINT32_MAX);
}
