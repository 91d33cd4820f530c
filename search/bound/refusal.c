/* Sweeps without bounds: keys and knobs that the bounds do not follow (knobs.def). */
#include "search/bound/bounds.h"

#include "ir/strategy/scenario.h"
#include "search/space/frame.h"

#include <string.h>

static bool varies(const ds_space *s, const ds_knob *line) {
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.knob == line) return true;
    return false;
}

const char *ds_bounds_refusal(const ds_space *s, ds_arena *arena) {
    uint32_t n;
    const ds_knob *lines = ds_scenario_knobs(&n);
    for (const ds_knob *line = lines; line < lines + n; line++) {
        if (line->bounds != DS_BOUNDS_NONE) continue;
        if (!ds_scenario_find(s->unit, line->section, line->name) && !varies(s, line)) continue;
        return line->unbounded
                   ? line->unbounded
                   : ds_arena_printf(arena, "%s.%s is not followed", line->section, line->name);
    }
    const char *cost = "fitted";
    const ds_attr *attr = ds_scenario_find(s->unit, "", "cost");
    if (attr && ds_scenario_text(s->base, "", "cost", &cost, NULL) == DS_OK &&
        strcmp(cost, "fitted") != 0)
        return "measured costs follow no curve that could be bounded: say cost = fitted";
    return varies(s, ds_scenario_knob("", "cost")) ? "the kind of costs varies" : NULL;
}
