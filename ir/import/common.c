/* What the importers share: params, the scenario block, text from foreign files; and the table of
 * importers. */
#include "ir/import/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ds_status unknown_setting(const ds_setting *setting, const ds_import_param *params,
                                 uint32_t n, ds_error *err) {
    ds_buf list = {0};
    for (uint32_t i = 0; i < n && i < 20; i++)
        ds_buf_printf(&list, "%s%s", i ? ", " : "", params[i].name);
    ds_error_set(err, DS_ERR_NAME, DS_NOWHERE,
                 "--set %s: the imported file has no such param (%s%s)", setting->path,
                 n ? "it has " : "it has none", n ? list.text : "");
    ds_buf_deinit(&list);
    return DS_ERR_NAME;
}

static ds_status parse_size(const ds_setting *setting, int64_t *out, ds_error *err) {
    char *end;
    errno = 0;
    long long value = strtoll(setting->text, &end, 10);
    if (errno || end == setting->text || *end || value < 1)
        return ds_error_set(err, DS_ERR_VALUE, DS_NOWHERE,
                            "--set %s=%s: an integer of at least 1 is needed", setting->path,
                            setting->text);
    *out = value;
    return DS_OK;
}

static const char profile_key[] = "scenario.profile";

ds_status ds_import__set(const ds_import_options *options, ds_import_param *params, uint32_t n,
                         ds_error *err) {
    for (uint32_t s = 0; s < options->n_settings; s++) {
        const ds_setting *setting = &options->settings[s];
        uint32_t i = 0;
        if (strcmp(setting->path, profile_key) == 0) continue;
        while (i < n && strcmp(params[i].name, setting->path) != 0) i++;
        if (i == n) return unknown_setting(setting, params, n, err);
        DS_TRY(parse_size(setting, &params[i].value, err));
    }
    return DS_OK;
}

void ds_import__put_params(const ds_import_param *params, uint32_t n, ds_buf *out) {
    for (uint32_t i = 0; i < n; i++)
        ds_buf_printf(out, "%s%s = %" PRId64, i ? ", " : "param ", params[i].name, params[i].value);
    if (n) ds_buf_put(out, "\n");
}

static void put_profile(const ds_import_options *options, ds_buf *out) {
    for (uint32_t i = 0; i < options->n_settings; i++) {
        const char *name = options->settings[i].text;
        if (strcmp(options->settings[i].path, profile_key) != 0) continue;
        ds_buf_put(out, "  profile = ");
        if (strcmp(name, "ideal") == 0)
            ds_buf_put(out, name);
        else
            ds_buf_put_quoted(out, name);
        ds_buf_put(out, "\n");
    }
}

void ds_import__put_on(const ds_import_options *options, ds_buf *out) {
    if (!options->on_file) return;
    ds_buf_put(out, "import ");
    ds_buf_put_quoted(out, options->on_file);
    if (options->nodes) ds_buf_printf(out, " as box with nodes = %" PRId64, options->nodes);
    ds_buf_put(out, "\n");
}

void ds_import__put_scenario(const ds_import_options *options, const char *title, const char *model,
                             const char *train, const char *strategy, const char *batch,
                             ds_buf *out) {
    ds_buf_put(out, "\nscenario {\n");
    if (title) {
        ds_buf_put(out, "  title = ");
        ds_buf_put_quoted(out, title);
        ds_buf_put(out, "\n");
    }
    ds_buf_printf(out, "  model = @%s\n", model);
    if (options->on_file) {
        ds_buf_printf(out, "  on = @%s%s\n  %s\n", options->nodes ? "box." : "", options->on_name,
                      train);
        ds_buf_printf(out, "  strategy { %s }\n", strategy);
        put_profile(options, out);
    }
    if (batch) ds_buf_printf(out, "  batch = %s\n", batch);
    ds_buf_put(out, "}\n");
}

const char *ds_import__plain(ds_arena *arena, const char *text) {
    char *copy = ds_arena_strndup(arena, text, strnlen(text, 80));
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 0x7f) *c = '?';
    return copy;
}

bool ds_import__is_word_of(const char *word, const char *list) {
    size_t n = strlen(word);
    for (const char *at = list; n && (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

/* ---- the table ---- */

static const ds_import_format formats[] = {
#define IMPORTER(function, name, kind, file, most_bytes, help)                                     \
    {name, DS_IMPORT_##kind, most_bytes, ds_import_##function},
#include "ir/import/importers.def"
#undef IMPORTER
};

const ds_import_format *ds_import_format_by_name(const char *name) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}
