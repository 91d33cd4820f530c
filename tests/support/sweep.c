#include "tests/support/sweep.h"

#include "ir/verify/verify.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void finish(sweep_case *c, const char *settings) {
    snprintf(c->copy, sizeof c->copy, "%s", settings ? settings : "");
    for (char *word = strtok(c->copy, " "); word && c->n_settings < 8; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        c->settings[c->n_settings++] = (ds_setting){word, equals + 1};
    }
    ds_diags diags;
    ds_diags_init(&diags);
    if (c->status == DS_OK && ds_verify(c->unit, &diags) != DS_OK) {
        for (uint32_t i = 0; i < diags.all.n && c->status == DS_OK; i++)
            if (diags.all.at[i].severity == DS_SEV_ERROR)
                c->status = ds_error_set(&c->err, diags.all.at[i].code, diags.all.at[i].loc, "%s",
                                         diags.all.at[i].message);
    }
    ds_diags_deinit(&diags);
    if (c->status == DS_OK)
        c->status = ds_bind(c->unit, c->settings, c->n_settings, &c->binding, &c->err);
    if (c->status == DS_OK) c->status = ds_profiles_load(DS_BUILD_PROFILES, &c->profiles, &c->err);
    if (c->status != DS_OK) printf("line %u: %s\n", c->err.loc.line, c->err.message);
}

void sweep_open_text(sweep_case *c, const char *text, const char *settings) {
    *c = (sweep_case){.path = DS_SOURCE_DIR "/scenarios/test.dir"};
    c->text = ds_xmalloc(strlen(text) + 1);
    strcpy(c->text, text);
    c->status = ds_load_text(c->path, text, strlen(text), NULL, &c->unit, &c->err);
    finish(c, settings);
}

void sweep_open_file(sweep_case *c, const char *path, const char *settings) {
    *c = (sweep_case){.path = path};
    c->status = ds_load_file(path, NULL, &c->unit, &c->err);
    finish(c, settings);
}

void sweep_close(sweep_case *c) {
    ds_profiles_free(c->profiles);
    ds_unit_free(c->unit);
    free(c->text);
}

char *sweep_candidates(sweep_case *c) {
    ds_space *space;
    ds_arena arena;
    ds_buf text = {0};
    bool found = true;
    c->status = ds_space_new(&c->binding, c->settings, c->n_settings, &space, &c->err);
    if (c->status != DS_OK) return NULL;
    ds_arena_init(&arena);
    ds_candidate candidate = ds_candidate_new(space, &arena);
    ds_buf_put(&text, "");
    while (c->status == DS_OK && found) {
        c->status = ds_space_next(space, &candidate, &found, &c->err);
        for (uint32_t i = 0; c->status == DS_OK && found && i < ds_space_n_dims(space); i++) {
            if (i) ds_buf_putc(&text, ' ');
            ds_space_put_value(space, &candidate, i, &text);
        }
        if (found) ds_buf_putc(&text, '\n');
    }
    ds_arena_deinit(&arena);
    ds_space_free(space);
    if (c->status == DS_OK) return text.text;
    ds_buf_deinit(&text);
    return NULL;
}

void sweep_run(sweep_case *c, const ds_sweep_options *options, ds_sweep_result *out,
               ds_status expected) {
    ds_sweep_subject subject = {.binding = &c->binding,
                                .settings = c->settings,
                                .n_settings = c->n_settings,
                                .path = c->path,
                                .text = c->text,
                                .text_n = c->text ? strlen(c->text) : 0,
                                .profiles = c->profiles};
    ds_status status = ds_sweep_run(&subject, options, out, &c->err);
    cr_assert_eq(status, expected, "%s", status == DS_OK ? "no error" : c->err.message);
}

char *sweep_read(const char *path, size_t *n) {
    FILE *file = fopen(path, "rb");
    ds_buf text = {0};
    char chunk[4096];
    size_t got;
    if (!file) return NULL;
    ds_buf_put(&text, "");
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0) ds_buf_put_n(&text, chunk, got);
    fclose(file);
    if (n) *n = text.n;
    return text.text;
}

/* One cell from `from`; *to is its end. False if a quote is not closed. */
static bool unquote(char *from, char **to) {
    char *out = from;
    char *at = from + 1;
    while (*at && !(*at == '"' && at[1] != '"')) {
        if (*at == '"') at++;
        *out++ = *at++;
    }
    if (*at != '"') return false;
    *out = '\0';
    *to = at + 1;
    return true;
}

uint32_t sweep_split(char *record, char **cells, uint32_t max) {
    uint32_t n = 0;
    char *at = record;
    for (;;) {
        char *cell = at, *end;
        if (*at == '"') {
            if (!unquote(at, &end)) return 0;
        } else {
            end = at + strcspn(at, ",\n\r");
        }
        if (n < max) cells[n] = cell;
        n++;
        bool more = *end == ',';
        *end = '\0';
        if (!more) return n;
        at = end + 1;
    }
}

uint32_t sweep_column(const char *table, const char *name) {
    char *cells[64], *copy = strndup(table, strcspn(table, "\n") + 1);
    uint32_t n = sweep_split(copy, cells, 64), i = 0;
    while (i < n && strcmp(cells[i], name) != 0) i++;
    cr_assert_lt(i, n, "there is no column %s", name);
    free(copy);
    return i;
}

void sweep_folder(char path[64]) {
    const char *base = getenv("TMPDIR");
    snprintf(path, 64, "%.40s/sweep-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(path));
}

void sweep_remove_folder(const char *path) {
    DIR *folder = opendir(path);
    char name[512];
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        snprintf(name, sizeof name, "%s/%.255s", path, entry->d_name);
        if (entry->d_name[0] != '.') unlink(name);
    }
    if (folder) closedir(folder);
    rmdir(path);
}
