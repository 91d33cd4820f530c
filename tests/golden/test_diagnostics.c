/* Golden diagnostics: every malformed input of diagnostics/ against its whole expected output.
 *
 * A case is NAME.dir and NAME.expect beside it. A line `// SET: n=7` in the input is a setting of
 * the command line. Each input goes as far as it gets: load, verify, bind, verify with numbers,
 * build its topologies. Paths in the messages are relative to diagnostics/, and LIBRARY stands for
 * the folder of the library, so that they are the same everywhere.
 *
 *     DISTSIM_REGENERATE=1 build/…/test_golden_diagnostics     rewrites the .expect files
 *
 * Regenerating is for reading the difference, not for making the test green. */
#include "ir/lang/library.h"
#include "ir/verify/verify.h"
#include "sim/topo/topo.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER       DS_TEST_DIR "/golden/diagnostics"
#define MAX_CASES    1000
#define MAX_SETTINGS 8

/* ---- files ---- */

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    ds_buf buf = {0};
    char chunk[4096];
    size_t n;
    ds_buf_put(&buf, "");
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) ds_buf_put_n(&buf, chunk, n);
    fclose(file);
    return buf.text;
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "cannot write %s", path);
    fputs(text, file);
    fclose(file);
}

static int is_case(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".dir") == 0;
}

/* `text` with LIBRARY for the library's folder; frees `text`. */
static char *without_library(char *text) {
    ds_buf library = {0}, out = {0};
    ds_library_folder(&library);
    const char *from = text;
    for (const char *at; (at = strstr(from, library.text)) != NULL; from = at + library.n) {
        ds_buf_put_n(&out, from, (size_t)(at - from));
        ds_buf_put(&out, "LIBRARY");
    }
    ds_buf_put(&out, from);
    ds_buf_deinit(&library);
    free(text);
    return out.text;
}

/* ---- one case ---- */

/* `// SET: n=7` lines; the texts are cut out of `source`. */
static uint32_t find_settings(char *source, ds_setting *settings) {
    uint32_t n = 0;
    for (char *at = source; (at = strstr(at, "// SET: ")) != NULL && n < MAX_SETTINGS;) {
        at += strlen("// SET: ");
        char *end = at + strcspn(at, "\r\n");
        char *equals = memchr(at, '=', (size_t)(end - at));
        if (!equals) continue;
        bool last = !*end;
        *end = *equals = '\0';
        settings[n++] = (ds_setting){at, equals + 1};
        if (last) break;
        at = end + 1;
    }
    return n;
}

static void build_topologies(const ds_binding *binding, ds_buf *out) {
    const ds_module *root = binding->unit->modules.at[0];
    for (uint32_t i = 0; i < root->topologies.n; i++) {
        ds_topo *topo = NULL;
        ds_error err = {0};
        if (ds_topo_build(binding, root->topologies.at[i], &topo, &err) == DS_OK)
            ds_topo_free(topo);
        else
            ds_error_print(binding->unit, &err, out);
    }
}

static void verify(ds_unit *unit, const char *path, ds_buf *out) {
    ds_diags diags;
    ds_diags_init(&diags);
    ds_setting settings[MAX_SETTINGS];
    char *source = read_file(path);
    uint32_t n_settings = find_settings(source, settings);
    ds_binding binding;
    ds_error err = {0};
    bool bound = false;
    if (ds_verify(unit, &diags) == DS_OK) {
        bound = ds_bind(unit, settings, n_settings, &binding, &err) == DS_OK;
        if (bound) bound = ds_verify_bound(unit, &binding, &diags) == DS_OK;
    }
    for (uint32_t i = 0; i < diags.all.n; i++) ds_diag_print(unit, &diags.all.at[i], out);
    if (err.code != DS_OK) ds_error_print(unit, &err, out);
    if (bound) build_topologies(&binding, out);
    ds_diags_deinit(&diags);
    free(source);
}

static char *diagnose(const char *path) {
    ds_buf out = {0};
    ds_unit *unit = NULL;
    ds_error err = {0};
    ds_buf_put(&out, "");
    if (ds_load_file(path, NULL, &unit, &err) == DS_OK)
        verify(unit, path, &out);
    else
        ds_error_print(unit, &err, &out);
    ds_unit_free(unit);
    return without_library(out.text);
}

static void check_case(const char *name, bool regenerate) {
    char expect_path[512];
    size_t stem = strlen(name) - strlen(".dir");
    snprintf(expect_path, sizeof expect_path, "%.*s.expect", (int)stem, name);
    char *found = diagnose(name);
    if (regenerate) write_file(expect_path, found);
    char *expected = read_file(expect_path);
    cr_expect_not_null(expected, "%s is missing", expect_path);
    cr_expect(*found, "%s is accepted without a word", name);
    if (expected)
        cr_expect(strcmp(expected, found) == 0, "%s\n---- expected:\n%s---- found:\n%s", name,
                  expected, found);
    free(expected);
    free(found);
}

Test(diagnostics, golden) {
    cr_assert_eq(chdir(FOLDER), 0, "no folder %s", FOLDER);
    struct dirent **entries;
    int n = scandir(".", &entries, is_case, alphasort);
    cr_assert(n >= 70 && n < MAX_CASES, "%d cases", n);
    const char *wanted = getenv("DISTSIM_REGENERATE");
    bool regenerate = wanted && strcmp(wanted, "1") == 0;
    for (int i = 0; i < n; i++) {
        check_case(entries[i]->d_name, regenerate);
        free(entries[i]);
    }
    free(entries);
}
