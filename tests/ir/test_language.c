/* The reference (ir/lang/LANGUAGE.md) against the tables that it documents: one `### name` section
 * for every op of ops.def and no other, and every attribute of an op named in its section. */
#define _GNU_SOURCE
#include "ir/ops/ops.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_reference(void) {
    FILE *file = fopen(DS_SOURCE_DIR "/ir/lang/LANGUAGE.md", "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    cr_assert_eq(fread(text, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    return text;
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

Test(language, has_one_section_an_op) {
    char *text = read_reference();
    for (ds_opcode code = DS_OP_FIRST_TABLE_OP; code < DS_OP_COUNT; code++) {
        char *part = section(text, ds_op_name(code));
        cr_expect_not_null(part, "no section for %s", ds_op_name(code));
        free(part);
    }
    uint32_t headings = 0;
    const char *operations = strstr(text, "\n## Operations\n");
    cr_assert_not_null(operations);
    for (const char *at = strstr(operations, "\n### "); at; at = strstr(at + 1, "\n### ")) {
        char name[64] = "";
        sscanf(at, "\n### %63s", name);
        cr_expect_neq(ds_op_by_name(name), (ds_opcode)DS_OP_INVALID, "### %s is no op", name);
        headings++;
    }
    cr_expect_eq(headings, (uint32_t)(DS_OP_COUNT - DS_OP_FIRST_TABLE_OP));
    free(text);
}

Test(language, names_every_attribute) {
    char *text = read_reference();
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
            at += strcspn(at, " ");
        }
        free(part);
    }
    free(text);
}
