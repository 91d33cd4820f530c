/* parse(print(m)) == m and fmt(fmt(x)) == fmt(x), for 10,000 generated modules and every scenario.
 */
#include "ir/lang/lang.h"
#include "tests/support/generate/gen_module.h"
#include "tests/support/module_equal.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { SEEDS = 10000, PER_TEST = 2500 };

static ds_unit *parse(const char *name, const ds_buf *text) {
    ds_unit *unit = ds_unit_new();
    ds_error err = {0};
    ds_module *module = ds_unit_add_module(unit, name, text->text, text->n);
    if (ds_parse(module, &err)) {
        ds_buf report = {0};
        ds_error_print(unit, &err, &report);
        cr_assert_fail("%s\n%s", report.text, text->text);
    }
    return unit;
}

static void check_text(const char *name, const ds_buf *text) {
    ds_buf once = {0}, twice = {0};
    ds_unit *a = parse(name, text);
    ds_print_module(a->modules.at[0], &once);
    ds_unit *b = parse(name, &once);
    ds_print_module(b->modules.at[0], &twice);
    const char *difference = ds_test_module_difference(a->modules.at[0], b->modules.at[0]);
    cr_assert_null(difference, "%s: not the same: %s\n%s", name, difference, once.text);
    cr_assert_str_eq(once.text, twice.text, "%s: print is not stable", name);
    ds_unit_free(a);
    ds_unit_free(b);
    ds_buf_deinit(&once);
    ds_buf_deinit(&twice);
}

static void check(uint64_t seed) {
    ds_buf text = {0};
    char name[32];
    snprintf(name, sizeof name, "seed %llu", (unsigned long long)seed);
    ds_test_gen_module(seed, &text);
    check_text(name, &text);
    ds_buf_deinit(&text);
}

static void check_part(uint64_t part) {
    for (uint64_t seed = part * PER_TEST; seed < (part + 1) * PER_TEST; seed++) check(seed);
}

Test(roundtrip, seeds_0) {
    check_part(0);
}
Test(roundtrip, seeds_1) {
    check_part(1);
}
Test(roundtrip, seeds_2) {
    check_part(2);
}
Test(roundtrip, seeds_3) {
    check_part(3);
}
_Static_assert(SEEDS == 4 * PER_TEST, "every seed is in a part");

/* ---- the files of the repository ---- */

static void check_file(const char *path) {
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    ds_buf text = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) ds_buf_put_n(&text, chunk, n);
    fclose(file);
    check_text(path, &text);
    ds_buf_deinit(&text);
}

static void check_folder(const char *path, uint32_t *count) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t n = strlen(entry->d_name);
        if (entry->d_name[0] == '.') continue;
        ds_buf child = {0};
        ds_buf_printf(&child, "%s/%s", path, entry->d_name);
        if (n > 4 && strcmp(entry->d_name + n - 4, ".dir") == 0) {
            check_file(child.text);
            ++*count;
        } else {
            check_folder(child.text, count);
        }
        ds_buf_deinit(&child);
    }
    closedir(folder);
}

Test(roundtrip, every_scenario) {
    uint32_t count = 0;
    check_folder(DS_SOURCE_DIR "/scenarios", &count);
    cr_assert_gt(count, 10);
}

/* The pages of the language: each indented block that starts with a declaration is a file. */
static bool starts_declaration(const char *line) {
    static const char *const words[] = {"dir ",      "topology @", "func @",    "mesh @",
                                        "program @", "schedule @", "scenario {"};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (strncmp(line, words[k], strlen(words[k])) == 0) return true;
    return false;
}

static void finish_example(ds_buf *text, uint32_t *count) {
    if (!text->n) return;
    char name[32];
    snprintf(name, sizeof name, "example %u", ++*count);
    check_text(name, text);
    ds_buf_deinit(text);
}

static void check_page(const char *page, uint32_t *count) {
    FILE *file = fopen(page, "rb");
    cr_assert_not_null(file, "%s", page);
    ds_buf text = {0};
    char line[512];
    for (bool inside = false; fgets(line, sizeof line, file);) {
        bool indented = strncmp(line, "    ", 4) == 0, blank = line[0] == '\n';
        if (!indented && !blank) finish_example(&text, count);
        inside = inside && (indented || blank);
        if (indented && !inside && starts_declaration(line + 4)) {
            inside = true;
            bool whole = strncmp(line + 4, "dir ", 4) == 0;
            if (!whole) ds_buf_put(&text, "dir 1\nparam layers = 4, width = 8, batch = 8\n");
        }
        if (inside) ds_buf_put(&text, indented ? line + 4 : line);
    }
    finish_example(&text, count);
    fclose(file);
}

Test(roundtrip, every_example_of_the_reference) {
    static const char *const pages[] = {"LANGUAGE", "CHEATSHEET", "types",    "programs",
                                        "ranks",    "topology",   "scenario", "sweep"};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char path[256];
        snprintf(path, sizeof path, DS_SOURCE_DIR "/ir/lang/%s.md", pages[i]);
        check_page(path, &count);
    }
    cr_assert_geq(count, 14);
}
