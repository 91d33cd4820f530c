/* The reference (ir/lang/LANGUAGE.md) against the tables that it documents: one `### name` section
 * for every op of ops.def and no other; every attribute of an op named in its section, with the
 * values that it may have; every key of a scenario with its values in the tables there. */
#define _GNU_SOURCE
#include "ir/ops/ops.h"
#include "ir/strategy/scenario.h"

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

Test(language, says_what_works_in_place) {
    char *text = read_reference();
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

/* The scenario's tables up to the next chapter: one for the top level, one a block. */
static char *knob_tables(const char *text, const char *block) {
    const char *at = strstr(text, "\n## The scenario\n");
    cr_assert_not_null(at);
    char heading[64];
    snprintf(heading, sizeof heading, "\nIn `%s`:\n", block);
    at = *block ? strstr(at, heading) : at;
    cr_assert_not_null(at, "no table for %s", block);
    const char *end = strstr(at + 1, "\nIn `");
    const char *chapter = strstr(at + 1, "\n## ");
    if (!end || end > chapter) end = chapter;
    return strndup(at, (size_t)(end - at));
}

/* A key opens a row, alone or in a list; its choices are in that row. Dtypes are listed once. */
Test(language, names_every_key_of_a_scenario) {
    char *text = read_reference();
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    for (uint32_t i = 0; i < n; i++) {
        char *table = knob_tables(text, knobs[i].section), quoted[70];
        char *row = NULL;
        snprintf(quoted, sizeof quoted, "`%s`", knobs[i].name);
        for (char *at = strstr(table, "\n| `"); at && !row; at = strstr(at + 1, "\n| `")) {
            char *cell = strndup(at, 3 + strcspn(at + 3, "|"));
            if (strstr(cell, quoted)) row = strndup(at + 1, strcspn(at + 1, "\n"));
            free(cell);
        }
        cr_expect_not_null(row, "%s.%s has no row", knobs[i].section, knobs[i].name);
        const char *at =
            knobs[i].choices && !strstr(knobs[i].name, "dtype") ? knobs[i].choices : "";
        for (; row && *at; at += strspn(at, " ")) {
            snprintf(quoted, sizeof quoted, "`%.*s`", (int)strcspn(at, " "), at);
            cr_expect(strstr(row, quoted), "%s: value %s is not in its row", knobs[i].name, quoted);
            at += strcspn(at, " ");
        }
        free(row);
        free(table);
    }
    free(text);
}
