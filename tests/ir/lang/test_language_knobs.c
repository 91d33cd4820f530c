/* The tables of a scenario's keys in LANGUAGE.md, made from the lines of knobs.def: each stands
 * between "<!-- keys of SECTION -->" and "<!-- end of keys -->", and is compared with what the
 * lines give. With DISTSIM_WRITE_PAGES in the environment the page is written anew in place of
 * failing. */
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE DS_SOURCE_DIR "/ir/lang/LANGUAGE.md"

static char *read_page(void) {
    FILE *file = fopen(PAGE, "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)size + 1, 1);
    cr_assert_eq(fread(text, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    return text;
}

/* ---- a table ---- */

static void put_choices(const ds_knob *knob, ds_buf *out) {
    const char *at = knob->choices;
    for (size_t n; *at; at += n + strspn(at + n, " ")) {
        n = strcspn(at, " ");
        ds_buf_printf(out, "%s`%.*s`", at == knob->choices ? "" : ", ", (int)n, at);
    }
}

static void put_value(const ds_knob *knob, ds_buf *out) {
    static const char *const words[] = {[DS_KNOB_REAL] = "number",
                                        [DS_KNOB_BOOL] = "`true`, `false`",
                                        [DS_KNOB_TEXT] = "text",
                                        [DS_KNOB_AXES] = "text",
                                        [DS_KNOB_DTYPE] = "dtype",
                                        [DS_KNOB_TEXTS] = "a list of texts",
                                        [DS_KNOB_FLAGS] = "a list of them",
                                        [DS_KNOB_ENTRY] = "`@function`",
                                        [DS_KNOB_MESH] = "`@mesh`",
                                        [DS_KNOB_PLACE] = "`@topology`",
                                        [DS_KNOB_SCHEDULE] = "text, or `@schedule`",
                                        [DS_KNOB_RANDOM] = "distribution",
                                        [DS_KNOB_SECTION] = "block"};
    const char *word = words[knob->kind];
    bool least = knob->kind == DS_KNOB_REAL;
    switch (knob->kind) {
    case DS_KNOB_INT:
    case DS_KNOB_INTS:
        word = knob->kind == DS_KNOB_INT ? "integer" : "list of integers";
        if (knob->kind == DS_KNOB_INT && knob->choices) word = NULL;
        least = word && (knob->kind == DS_KNOB_INT || knob->min);
        break;
    case DS_KNOB_QUANTITY:
        word = knob->dimension == 'T' ? "time, as `3 ms`" : "size, as `25 MB`";
        break;
    case DS_KNOB_TEXT:
        if (knob->choices) word = NULL;
        break;
    case DS_KNOB_DTYPE:
        ds_buf_put(out, word);
        return;
    default:
        break;
    }
    bool first = knob->kind == DS_KNOB_TEXTS || knob->kind == DS_KNOB_FLAGS;
    if (knob->choices && (first || !word)) put_choices(knob, out);
    if (word) ds_buf_printf(out, "%s%s", knob->choices && first ? ", or " : "", word);
    if (least) ds_buf_printf(out, " ≥ %lld", (long long)knob->min);
    if (knob->choices && word && !first) ds_buf_put(out, ", or ");
    if (knob->choices && word && !first) put_choices(knob, out);
}

static void put_table(const char *section, ds_buf *out) {
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    bool defaults = strcmp(section, "train") == 0 || strcmp(section, "strategy") == 0;
    ds_buf_printf(out, "\n| Key | Value | %sMeaning |\n|---|---|%s---|\n",
                  defaults ? "Default | " : "", defaults ? "---|" : "");
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(knobs[i].section, section) != 0) continue;
        const char *initial = knobs[i].initial;
        ds_buf_printf(out, "| `%s` | ", knobs[i].name);
        put_value(&knobs[i], out);
        if (initial) ds_buf_printf(out, *initial ? " | `%s`" : " | %s", initial);
        ds_buf_printf(out, " | %s |\n", knobs[i].doc);
    }
}

/* ---- the page ---- */

/* The page with every table made anew. The caller frees the text. */
static char *with_tables(const char *page, uint32_t *n_tables) {
    static const char begin[] = "<!-- keys of ", end[] = "<!-- end of keys -->\n";
    ds_buf out = {0};
    *n_tables = 0;
    for (const char *at; (at = strstr(page, begin)) != NULL; ++*n_tables) {
        char section[32] = "";
        const char *body = strchr(at, '\n') + 1, *stop = strstr(at, end);
        cr_assert_not_null(stop, "a table does not end");
        sscanf(at + sizeof begin - 1, "%31s", section);
        ds_buf_put_n(&out, page, (size_t)(body - page));
        put_table(strcmp(section, "scenario") == 0 ? "" : section, &out);
        ds_buf_putc(&out, '\n');
        page = stop;
        ds_buf_put_n(&out, end, sizeof end - 1);
        page += sizeof end - 1;
    }
    ds_buf_put(&out, page);
    return out.text;
}

Test(language_knobs, tables_are_those_of_the_lines) {
    uint32_t n;
    char *page = read_page(), *made = with_tables(page, &n);
    cr_assert_eq(n, 5, "a table for the scenario, train, strategy, jitter and jobs");
    if (strcmp(page, made) != 0 && getenv("DISTSIM_WRITE_PAGES")) {
        FILE *file = fopen(PAGE, "wb");
        cr_assert_not_null(file);
        fputs(made, file);
        fclose(file);
    } else {
        cr_expect(
            strcmp(page, made) == 0,
            "LANGUAGE.md differs from knobs.def: DISTSIM_WRITE_PAGES=1 ctest -R language_knobs");
    }
    free(made);
    free(page);
}

Test(language_knobs, names_every_setting_of_a_framework) {
    uint32_t n;
    const ds_preset *presets = ds_presets(&n);
    char *page = read_page(), *table = strstr(page, "\n### Frameworks\n");
    cr_assert_not_null(table);
    table[strcspn(table + 5, "#") + 5] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char setting[96];
        snprintf(setting, sizeof setting, "`%s = %s`", presets[i].key, presets[i].value);
        cr_expect_not_null(strstr(table, setting), "%s", setting);
    }
    free(page);
}
