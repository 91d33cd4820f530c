/* The page of operations (ir/ops/OPS.generated.md) against the op table: one `### name` section for
 * every op and no other; every attribute of an op named in its section, with the values that the
 * attribute may have; whose buffer a result takes; an example that type inference accepts. */
#define _GNU_SOURCE
#include "tests/support/op_text.h"

#include "ir/base/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_page(void) {
    ds_buf page = {0};
    ds_error err = {0};
    const char *path = DS_SOURCE_DIR "/ir/ops/OPS.generated.md";
    cr_assert_eq(ds_file_read(path, DS_NOWHERE, 1 << 22, &page, &err), DS_OK, "%s", err.message);
    return page.text;
}

/* The section of an op, NUL-terminated copy; NULL if there is none. */
static char *section(const char *text, const char *name) {
    char heading[64];
    snprintf(heading, sizeof heading, "\n### %s\n", name);
    const char *at = strstr(text, heading);
    if (!at) return NULL;
    at += strlen(heading);
    const char *end = strstr(at, "\n##");
    return strndup(at, end ? (size_t)(end - at) : strlen(at));
}

Test(manual, has_one_section_an_op) {
    char *text = read_page();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        char *part = section(text, ds_op_name(code));
        cr_expect_not_null(part, "no section for %s", ds_op_name(code));
        free(part);
    }
    uint32_t headings = 0;
    for (const char *at = strstr(text, "\n### "); at; at = strstr(at + 1, "\n### ")) {
        char name[64] = "";
        sscanf(at, "\n### %63s", name);
        cr_expect_neq(ds_op_by_name(name), (ds_opcode)DS_OP_INVALID, "### %s is no op", name);
        headings++;
    }
    cr_expect_eq(headings, (uint32_t)(DS_OP_COUNT - DS_OP_FIRST_TABLE_OP));
    free(text);
}

Test(manual, names_every_attribute) {
    char *text = read_page();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const char *attrs = ds_op_desc_of(code)->attrs;
        char *part = section(text, ds_op_name(code));
        for (const char *at = attrs; part && at && *at;) {
            char name[64], quoted[70];
            at += strspn(at, " ");
            size_t n = strcspn(at, ":");
            snprintf(name, sizeof name, "%.*s", (int)n, at);
            snprintf(quoted, sizeof quoted, "`%s`", name);
            cr_expect(strstr(part, quoted), "%s: attribute %s is not in its section",
                      ds_op_name(code), name);
            const char *choices = at + strcspn(at, "{ ");
            for (at += strcspn(at, " "); *choices == '{' || *choices == ',';) {
                choices++;
                snprintf(quoted, sizeof quoted, "`%.*s`", (int)strcspn(choices, ",}"), choices);
                cr_expect(strstr(part, quoted), "%s: value %s of %s is not in its section",
                          ds_op_name(code), quoted, name);
                choices += strcspn(choices, ",}");
            }
        }
        free(part);
    }
    free(text);
}

/* Who may take whose buffer, in the words of the section. */
static const char *in_place_sentence(const ds_op_desc *desc) {
    if (!desc->inplace) return NULL;
    if (desc->flags & DS_OPF_OPTIMIZER)
        return "* In place: results take the buffers of the weight and the states;";
    if (strcmp(desc->inplace, "k") == 0)
        return "* Each result may reuse the buffer of its own operand";
    if (strcmp(desc->inplace, "0, -") == 0)
        return "* The first result may reuse the buffer of operand 0";
    return strcmp(desc->inplace, "0") == 0 ? "* May reuse the buffer of operand 0" : "?";
}

Test(manual, says_what_works_in_place) {
    char *text = read_page();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        const char *want = in_place_sentence(ds_op_desc_of(code));
        char *part = section(text, ds_op_name(code));
        bool says = part && (strstr(part, "reuse the buffer") || strstr(part, "* In place:"));
        cr_expect_eq(says, want != NULL, "%s", ds_op_name(code));
        if (want && part) cr_expect(strstr(part, want), "%s: %s", ds_op_name(code), want);
        free(part);
    }
    free(text);
}

/* "Example over `ARGS`:", an empty line, the op's line behind four spaces. */
Test(manual, examples_are_legal) {
    char *text = read_page();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        char *part = section(text, ds_op_name(code)), *args = calloc(1, 1);
        const char *at = part ? strstr(part, "\nExample") : NULL;
        cr_assert_not_null(at, "%s has no example", ds_op_name(code));
        const char *line = strstr(at, "\n    ") + 5;
        if (strncmp(at, "\nExample over `", 15) == 0) {
            free(args);
            args = strndup(at + 15, strcspn(at + 15, "`"));
        }
        op_text t;
        op_text_init(&t, NULL, args, line, OP_TEXT_BOUND);
        cr_expect_eq(t.err.code, DS_OK, "%s: %s", ds_op_name(code), t.err.message);
        cr_expect_eq(op_text_last(&t)->code, code, "%s: %s", ds_op_name(code), line);
        op_text_deinit(&t);
        free(args);
        free(part);
    }
    free(text);
}
