/* The page of a scenario's keys: PROSE with a table in place of each marker.
 *
 *     <!-- keys of SECTION -->   the lines of knobs.def of that section ("scenario": section "")
 *     <!-- frameworks -->        the presets of knobs.def
 *     <!-- results -->           the lines of metrics.def that expressions of a sweep may name
 *
 * A sentence that no line can say stands in PROSE, below the marker. */
#include "tools/mkmanual/mkmanual.h"

#include "ir/strategy/metrics.h"
#include "ir/strategy/preset.h"
#include "ir/strategy/scenario.h"
#include "ir/strategy/terms.h"

#include <stdio.h>
#include <string.h>

#define INTRODUCTION                                                                               \
    "<!-- The build makes this page of knobs.def, metrics.def and manual.md: "                     \
    "cmake --build build --target manual -->\n\n"

static void put_choices(const ds_knob *knob) {
    const char *at = knob->choices;
    for (size_t n; *at; at += n + strspn(at + n, " ")) {
        n = strcspn(at, " ");
        printf("%s`%.*s`", at == knob->choices ? "" : ", ", (int)n, at);
    }
}

/* The word for a value of the knob's kind; NULL: `choices` say all. */
static const char *word_of(const ds_knob *knob) {
    static const char *const words[] = {[DS_KNOB_INT] = "integer",
                                        [DS_KNOB_INTS] = "list of integers",
                                        [DS_KNOB_REAL] = "number",
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
    if (knob->kind == DS_KNOB_QUANTITY)
        return knob->dimension == 'T' ? "time, as `3 ms`" : "size, as `25 MB`";
    bool listed = knob->kind == DS_KNOB_INT || knob->kind == DS_KNOB_TEXT;
    return listed && knob->choices ? NULL : words[knob->kind];
}

static void put_value(const ds_knob *knob) {
    const char *word = word_of(knob);
    bool choices = knob->choices && knob->kind != DS_KNOB_DTYPE;
    bool first = knob->kind == DS_KNOB_TEXTS || knob->kind == DS_KNOB_FLAGS;
    bool least = word && (knob->kind == DS_KNOB_INT || knob->kind == DS_KNOB_REAL ||
                          (knob->kind == DS_KNOB_INTS && knob->min));
    if (choices && (first || !word)) put_choices(knob);
    if (word) printf("%s%s", choices && first ? ", or " : "", word);
    if (least) printf(" ≥ %lld", (long long)knob->min);
    if (choices && word && !first) {
        printf(", or ");
        put_choices(knob);
    }
}

static void put_keys(const char *section) {
    uint32_t n;
    const ds_knob *knobs = ds_scenario_knobs(&n);
    bool defaults = strcmp(section, "train") == 0 || strcmp(section, "strategy") == 0;
    printf("| Key | Value | %sMeaning |\n|---|---|%s---|\n", defaults ? "Default | " : "",
           defaults ? "---|" : "");
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(knobs[i].section, section) != 0) continue;
        const char *initial = knobs[i].initial;
        printf("| `%s` | ", knobs[i].name);
        put_value(&knobs[i]);
        if (initial) printf(*initial ? " | `%s`" : " | %s", initial);
        printf(" | %s |\n", knobs[i].doc);
    }
}

static void put_frameworks(void) {
    static const char *const when[] = {
        [DS_PRESET_ALWAYS] = "always",
        [DS_PRESET_BF16] = "with `dtype = bf16`",
        [DS_PRESET_REPLICAS] = "with `zero = 0` or `1` and replicas",
        [DS_PRESET_PARTITION] = "with `zero = 1` or `2` and replicas",
        [DS_PRESET_SHARDS] = "with `zero = 3` and dp > 1",
        [DS_PRESET_STAGES] = "with `zero = 2` or `3`, pp > 1 and replicas",
        [DS_PRESET_PARTS] = "with `zero = 3` and replicas",
        [DS_PRESET_SEQUENCE] = "with `zero` and cp > 1",
        [DS_PRESET_CHUNKS] = "with pp > 1",
        [DS_PRESET_PIPELINE] = "with pp > 1 and tp > 1, stages of one width"};
    uint32_t n;
    const ds_preset *presets = ds_presets(&n);
    printf("| Framework | Setting | Condition | Source |\n|---|---|---|---|\n");
    for (uint32_t i = 0; i < n; i++)
        printf("| `%s` | `%s = %s` | %s | %s |\n", presets[i].framework, presets[i].key,
               presets[i].value, when[presets[i].when], presets[i].source);
}

static void put_terms(void) {
    printf("| Term | Part of the cost model |\n|---|---|\n");
    for (uint32_t i = 0; i < DS_N_TERMS; i++)
        printf("| `%s` | %s |\n", ds_term_name(i), ds_term_doc(i));
}

static void put_results(void) {
    printf("| Name | Meaning | Known |\n|---|---|---|\n");
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        const ds_metric *metric = ds_metric_at((ds_metric_id)i);
        if (metric->sweep)
            printf("| `%s` | %s | %s |\n", metric->sweep, metric->doc,
                   metric->known ? "before" : "after");
    }
}

void mkmanual_knobs(const char *prose) {
    static const char begin[] = "<!-- ", end[] = " -->\n";
    printf("%s", INTRODUCTION);
    for (const char *at; (at = strstr(prose, begin)) != NULL;) {
        const char *marker = at + sizeof begin - 1, *stop = strstr(marker, end);
        if (!stop) break;
        printf("%.*s", (int)(at - prose), prose);
        char section[32];
        if (sscanf(marker, "keys of %31s", section) == 1)
            put_keys(strcmp(section, "scenario") == 0 ? "" : section);
        else if (strncmp(marker, "frameworks", 10) == 0)
            put_frameworks();
        else if (strncmp(marker, "terms", 5) == 0)
            put_terms();
        else if (strncmp(marker, "results", 7) == 0)
            put_results();
        prose = stop + sizeof end - 1;
    }
    printf("%s", prose);
}
