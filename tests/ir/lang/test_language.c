/* The reference (ir/lang/LANGUAGE.md) against the tables that it documents: every key of a scenario
 * with its values in the tables there. tests/ir/ops/test_manual.c holds the page of operations. */
#define _GNU_SOURCE
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
