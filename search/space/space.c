/* The odometer: from dimensions to candidates.
 *
 * digits[k] counts through the values of dimension k. To advance, the last digit turns; where a
 * digit has no more values, the digit before turns. Then every later digit starts anew, with its
 * domain evaluated for the digits before. Whenever a digit is set, the conditions of its level are
 * checked; where a condition fails the digit turns on, and later digits are not tried. */
#include "search/space/frame.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static ds_frame new_frame(ds_space *s) {
    ds_frame frame = {.params = DS_NEW_N(&s->arena, ds_num *, s->unit->modules.n)};
    for (uint32_t m = 0; m < s->unit->modules.n; m++) {
        uint32_t n = s->unit->modules.at[m]->params.n;
        frame.params[m] = DS_NEW_N(&s->arena, ds_num, n);
        if (n) memcpy(frame.params[m], s->base->params[m], n * sizeof **frame.params);
    }
    return frame;
}

static ds_status check_domain(ds_space *s, uint32_t dim, ds_error *err) {
    const ds_sweep_entry *entry = s->dims.at[dim].entry;
    const ds_expr ends[] = {entry->a, entry->b, entry->step};
    for (uint32_t i = 0; i < 3 + entry->list.n_items; i++) {
        const ds_attr *item = i < 3 ? NULL : &entry->list.items[i - 3];
        ds_expr e = i < 3 ? ends[i] : item->kind == DS_ATTR_EXPR ? item->expr : DS_NO_EXPR;
        ds_level level = 0;
        if (!DS_HAS_EXPR(e)) continue;
        DS_TRY(ds_space_level(s, e, entry->loc, &level, err));
        if (level > dim)
            return ds_error_set(err, DS_ERR_NAME, entry->loc,
                                "the values of '%s' follow from %s, which is not known yet there",
                                entry->name,
                                level > s->dims.n            ? "what is simulated"
                                : level == dim + UINT32_C(1) ? "itself"
                                                             : s->dims.at[level - 1].entry->name);
    }
    return DS_OK;
}

static void read_entries(ds_space *s) {
    for (uint32_t i = 0; i < s->sweep->n_entries; i++) {
        const ds_sweep_entry *entry = &s->sweep->entries[i];
        ds_space_dim dim = {.entry = entry};
        ds_objective objective = {ds_metric_by_name(entry->name ? entry->name : ""),
                                  entry->kind == DS_SWEEP_MAXIMIZE};
        if (entry->kind == DS_SWEEP_DIM && ds_sweep_find(s->unit, entry->name, &dim.target))
            DS_PUSH(&s->arena, &s->dims, dim);
        else if (entry->kind == DS_SWEEP_MINIMIZE || entry->kind == DS_SWEEP_MAXIMIZE)
            DS_PUSH(&s->arena, &s->objectives, objective);
        else if (entry->kind == DS_SWEEP_PRICE)
            s->price_entry = entry;
    }
    if (!s->objectives.n)
        DS_PUSH(&s->arena, &s->objectives, ((ds_objective){DS_METRIC_step_time, false}));
}

/* ---- settings against dimensions ---- */

static ds_status contradicts(const ds_space *s, uint32_t dim, const char *path, const char *how,
                             ds_error *err) {
    const ds_sweep_entry *entry = s->dims.at[dim].entry;
    return ds_error_set(err, DS_ERR_VALUE, entry->loc,
                        "the sweep varies '%s'%s, and --set %s=... fixes the same value: leave the "
                        "setting out, or give '%s' one value by --vary %s=VALUE",
                        entry->name, how, path, entry->name, entry->name);
}

/* Refuses a setting of a param that varies. */
static ds_status check_param_setting(ds_space *s, const char *path, ds_error *err) {
    const ds_module *module;
    uint32_t param;
    if (!ds_find_param(s->unit, path, &module, &param)) return DS_OK;
    for (uint32_t i = 0; i < s->dims.n; i++) {
        const ds_sweep_target *target = &s->dims.at[i].target;
        if (target->module == module && target->param == param)
            return contradicts(s, i, path, "", err);
    }
    return DS_OK;
}

/* The dimension that the file's own value of a key follows from; UINT32_MAX: from none. */
static ds_status dim_behind(ds_space *s, const ds_attr *attr, uint32_t *out, ds_error *err) {
    ds_level level = 0;
    *out = UINT32_MAX;
    for (uint32_t i = 0; attr && i < attr->n_items && *out == UINT32_MAX; i++)
        DS_TRY(dim_behind(s, &attr->items[i], out, err));
    if (*out != UINT32_MAX || !attr || !DS_HAS_EXPR(attr->expr)) return DS_OK;
    DS_TRY(ds_space_level(s, attr->expr, attr->loc, &level, err));
    if (level > 0 && level <= s->dims.n) *out = level - 1;
    return DS_OK;
}

/* Refuses a setting of a key that varies, by itself or through a param. */
static ds_status check_key_setting(ds_space *s, const ds_stated *said, ds_error *err) {
    uint32_t dim;
    if (!said->key) return DS_OK;
    const ds_knob *knob = ds_scenario_knob(said->section, said->key);
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.knob == knob) return contradicts(s, i, said->path, "", err);
    DS_TRY(dim_behind(s, said->instead_of, &dim, err));
    if (dim == UINT32_MAX) return DS_OK;
    ds_buf how = {0};
    ds_buf_printf(&how, ", from which the file makes %s", said->path);
    ds_status status = contradicts(s, dim, said->path, how.text, err);
    ds_buf_deinit(&how);
    return status;
}

bool ds_space_varies(void *space, const ds_knob *knob, ds_loc *loc) {
    ds_space *s = space;
    uint32_t dim = UINT32_MAX;
    for (uint32_t i = 0; i < s->dims.n; i++)
        if (s->dims.at[i].target.knob == knob) dim = i;
    if (dim == UINT32_MAX &&
        dim_behind(s, ds_scenario_find(s->unit, knob->section, knob->name), &dim, NULL) != DS_OK)
        return false;
    if (dim != UINT32_MAX) *loc = s->dims.at[dim].entry->loc;
    return dim != UINT32_MAX;
}

static ds_status check_settings(ds_space *s, ds_error *err) {
    for (uint32_t i = 0; i < s->n_settings; i++)
        DS_TRY(check_param_setting(s, s->settings[i].path, err));
    for (uint32_t i = 0; i < s->unit->said.n; i++)
        DS_TRY(check_key_setting(s, &s->unit->said.at[i], err));
    return DS_OK;
}

static bool wants_price(const ds_space *s) {
    for (uint32_t i = 0; i < s->objectives.n; i++) {
        ds_metric_id what = s->objectives.at[i].what;
        if (what == DS_METRIC_cost || what == DS_METRIC_cost_per_hour) return true;
    }
    return s->price_entry || s->simulated[DS_METRIC_cost] != UINT32_MAX;
}

static ds_status read_sweep(ds_space *s, ds_error *err) {
    uint32_t unused;
    s->sweep = ds_unit_sweep(s->unit);
    if (!s->sweep)
        return ds_error_set(
            err, DS_ERR_VALUE, DS_NOWHERE,
            "nothing to explore: the file has no sweep block, and no --vary NAME=VALUES "
            "says what varies");
    s->walk = new_frame(s);
    s->walk.lenient = true;
    s->judge = new_frame(s);
    s->region = new_frame(s);
    read_entries(s);
    DS_TRY(check_settings(s, err));
    for (uint32_t i = 0; i < s->dims.n; i++) DS_TRY(check_domain(s, i, err));
    for (uint32_t i = 0; i < s->sweep->n_entries; i++) {
        ds_condition condition = {.entry = &s->sweep->entries[i]};
        ds_sweep_kind kind = condition.entry->kind;
        if (kind != DS_SWEEP_WHERE && kind != DS_SWEEP_SUBJECT) continue;
        DS_TRY(ds_space_level(s, condition.entry->a, condition.entry->loc, &condition.level, err));
        if (kind == DS_SWEEP_SUBJECT) condition.level = s->dims.n + 1;
        DS_PUSH(&s->arena, &s->conditions, condition);
    }
    if (wants_price(s))
        DS_TRY(ds_space_name(s, ds_intern(&s->unit->strings, "cost_per_hour"), s->sweep->loc,
                             &unused, err));
    s->digits = DS_NEW_N(&s->arena, ds_digit, s->dims.n);
    s->current = DS_NEW_N(&s->arena, ds_choice, s->dims.n);
    DS_TRY(ds_space_cook(s, &s->walk, 0, err));
    return ds_space_cook(s, &s->judge, 0, err);
}

ds_status ds_space_new(const ds_binding *binding, const ds_setting *settings, uint32_t n_settings,
                       ds_space **out, ds_error *err) {
    ds_space *s = ds_xcalloc(1, sizeof *s);
    ds_arena_init(&s->arena);
    ds_map_init(&s->param_levels);
    s->unit = binding->unit;
    s->base = binding;
    s->settings = settings;
    s->n_settings = n_settings;
    s->world = s->price = UINT32_MAX;
    for (int i = 0; i < DS_METRIC_COUNT; i++) s->simulated[i] = UINT32_MAX;
    ds_status status = read_sweep(s, err);
    if (status != DS_OK) {
        ds_space_free(s);
        s = NULL;
    }
    *out = s;
    return status;
}

void ds_space_free(ds_space *s) {
    if (!s) return;
    for (uint32_t i = 0; s->digits && i < s->dims.n; i++) free(s->digits[i].divisors.at);
    ds_map_deinit(&s->param_levels);
    ds_arena_deinit(&s->arena);
    free(s);
}

/* ---- domains ---- */

static ds_status find_divisors(const ds_sweep_entry *entry, ds_digit *digit, int64_t of,
                               ds_error *err) {
    enum { MAX_DIVIDEND = 1000000000 };
    if (of < 1 || of > MAX_DIVIDEND)
        return ds_error_set(err, DS_ERR_VALUE, entry->loc,
                            "'%s': divisors(%" PRId64 "); the number must be from 1 to %d",
                            entry->name, of, MAX_DIVIDEND);
    if (digit->of == of) return DS_OK;
    digit->of = of;
    digit->divisors.n = 0;
    for (int64_t i = 1; i * i <= of; i++)
        if (of % i == 0) DS_HPUSH(&digit->divisors, i);
    for (uint32_t i = digit->divisors.n; i-- > 0;) {
        int64_t other = of / digit->divisors.at[i];
        if (other != digit->divisors.at[i]) DS_HPUSH(&digit->divisors, other);
    }
    return DS_OK;
}

static ds_status open_range(const ds_sweep_entry *entry, ds_digit *digit, int64_t lo, int64_t hi,
                            int64_t step, ds_error *err) {
    int64_t span;
    if (step < 1)
        return ds_error_set(err, DS_ERR_VALUE, entry->loc,
                            "'%s': the step is %" PRId64 "; it must be at least 1", entry->name,
                            step);
    if (__builtin_sub_overflow(hi, lo, &span) || __builtin_add_overflow(span, entry->closed, &span))
        return ds_error_set(err, DS_ERR_OVERFLOW, entry->loc, "'%s': the range is too wide",
                            entry->name);
    digit->first = lo;
    digit->step = step;
    digit->n = span > 0 ? (uint64_t)((span - 1) / step + 1) : 0;
    return DS_OK;
}

static void open_powers(ds_digit *digit, int64_t lo, int64_t hi) {
    digit->n = 0;
    digit->first = 1;
    while (digit->first < lo && digit->first <= INT64_MAX / 2) digit->first *= 2;
    for (int64_t at = digit->first; at >= lo && at <= hi; at *= 2) {
        digit->n++;
        if (at > INT64_MAX / 2) break;
    }
}

/* Evaluates the domain of a dimension for the digits before. */
static ds_status open_digit(ds_space *s, uint32_t dim, ds_error *err) {
    const ds_sweep_entry *entry = s->dims.at[dim].entry;
    ds_digit *digit = &s->digits[dim];
    ds_env env = ds_space_env(s, &s->walk);
    int64_t a = 0, b = 0, step = 1;
    const ds_expr ends[] = {entry->a, entry->b, entry->step};
    for (int i = 0; i < 3; i++) DS_TRY(ds_space_known(s, &s->walk, ends[i], err));
    digit->at = 0;
    if (DS_HAS_EXPR(entry->a)) DS_TRY(ds_expr_eval_int(&env, entry->a, entry->loc, &a, err));
    if (DS_HAS_EXPR(entry->b)) DS_TRY(ds_expr_eval_int(&env, entry->b, entry->loc, &b, err));
    if (DS_HAS_EXPR(entry->step))
        DS_TRY(ds_expr_eval_int(&env, entry->step, entry->loc, &step, err));
    switch (entry->domain) {
    case DS_DOMAIN_LIST:
        digit->n = entry->list.n_items;
        break;
    case DS_DOMAIN_RANGE:
        DS_TRY(open_range(entry, digit, a, b, step, err));
        break;
    case DS_DOMAIN_POWERS:
        open_powers(digit, a, b);
        break;
    case DS_DOMAIN_DIVISORS:
        DS_TRY(find_divisors(entry, digit, a, err));
        digit->n = digit->divisors.n;
        break;
    }
    return DS_OK;
}

/* The value of a list's item: a number or a text as such, any other kind as its text. */
static ds_status item_value(ds_space *s, const ds_attr *item, ds_num *out, ds_error *err) {
    ds_env env = ds_space_env(s, &s->walk);
    if (item->kind == DS_ATTR_EXPR) {
        DS_TRY(ds_space_known(s, &s->walk, item->expr, err));
        return ds_expr_eval(&env, item->expr, item->loc, out, err);
    }
    *out = (ds_num){.kind = DS_NUM_STR, .s = item->kind == DS_ATTR_WORD ? item->word : ""};
    if (item->kind == DS_ATTR_BOOL) *out = ds_num_bool(item->flag);
    return DS_OK;
}

static ds_status digit_value(ds_space *s, uint32_t dim, ds_choice *out, ds_error *err) {
    const ds_sweep_entry *entry = s->dims.at[dim].entry;
    const ds_digit *digit = &s->digits[dim];
    *out = (ds_choice){.value = {.kind = DS_NUM_INT}, .item = (uint32_t)digit->at};
    switch (entry->domain) {
    case DS_DOMAIN_LIST:
        return item_value(s, &entry->list.items[digit->at], &out->value, err);
    case DS_DOMAIN_RANGE:
        out->value.i = digit->first + (int64_t)digit->at * digit->step;
        return DS_OK;
    case DS_DOMAIN_POWERS:
        out->value.i = digit->first << digit->at;
        return DS_OK;
    case DS_DOMAIN_DIVISORS:
        out->value.i = digit->divisors.at[digit->at];
        return DS_OK;
    }
    return DS_OK;
}

/* ---- conditions ---- */

static ds_status holds(const ds_space *s, const ds_frame *frame, const ds_sweep_entry *entry,
                       bool *out, ds_error *err) {
    ds_env env = ds_space_env(s, frame);
    return ds_sweep_holds(&env, entry, out, err);
}

/* A condition that cannot be evaluated for these values (a division by zero) excludes nothing:
 * ds_space_admits reports that condition for each candidate. At level 0, where no value can change,
 * such a condition is an error. */
static ds_status check_level(ds_space *s, ds_level level, bool *ok, ds_error *err) {
    *ok = true;
    for (uint32_t i = 0; i < s->conditions.n && *ok; i++) {
        if (s->conditions.at[i].level != level) continue;
        ds_error why;
        const ds_sweep_entry *entry = s->conditions.at[i].entry;
        ds_status status = ds_space_known(s, &s->walk, entry->a, &why);
        if (status == DS_OK) status = holds(s, &s->walk, entry, ok, &why);
        bool doubtful = level > 0 && ds_space_is_of_values(status);
        s->doubtful = s->doubtful || doubtful;
        if (doubtful || status == DS_OK) continue;
        if (err) *err = why;
        return status;
    }
    return DS_OK;
}

/* ---- the walk ---- */

/* Sets digit `dim` to its current value; *ok tells whether the conditions of its level hold. */
static ds_status take_digit(ds_space *s, uint32_t dim, bool *ok, ds_error *err) {
    ds_choice *choice = &s->current[dim];
    DS_TRY(ds_stop_check_often(s->unit->stop, &s->polls, err));
    DS_TRY(digit_value(s, dim, choice, err));
    DS_TRY(ds_space_set(s, &s->walk, dim, choice->value, choice->item, err));
    return check_level(s, dim + 1, ok, err);
}

/* Finds the next values from digit `dim` on that hold all conditions, and turns earlier digits
 * where later digits run out. `turn`: digit `dim` moves on first. */
static ds_status search_on(ds_space *s, uint32_t dim, bool turn, ds_error *err) {
    uint32_t n = s->dims.n;
    while (dim < n) {
        ds_digit *digit = &s->digits[dim];
        if (turn)
            digit->at++;
        else
            DS_TRY(open_digit(s, dim, err));
        turn = true;
        bool ok = false;
        while (digit->at < digit->n && !ok) {
            DS_TRY(take_digit(s, dim, &ok, err));
            if (ok) continue;
            digit->at++;
            if (++s->rejected == s->most_rejected) return DS_OK;
        }
        if (ok) {
            dim++;
            turn = false;
        } else if (dim == 0) {
            s->ended = true;
            return DS_OK;
        } else {
            dim--;
        }
    }
    return DS_OK;
}

ds_status ds_space_next(ds_space *s, ds_candidate *candidate, bool *found, ds_error *err) {
    *found = false;
    if (s->ended) return DS_OK;
    bool ok = true;
    if (!s->started) DS_TRY(check_level(s, 0, &ok, err));
    if (!ok || !s->dims.n) s->ended = true;
    s->rejected = 0;
    if (!s->ended)
        DS_TRY(s->started ? search_on(s, s->dims.n - 1, true, err) : search_on(s, 0, false, err));
    s->started = true;
    s->ended = s->ended || ds_space_gave_up(s);
    *found = !s->ended;
    if (*found) memcpy(candidate->at, s->current, s->dims.n * sizeof *s->current);
    return DS_OK;
}

void ds_space_give_up_after(ds_space *s, uint64_t rejected) {
    s->most_rejected = rejected;
}

bool ds_space_gave_up(const ds_space *s) {
    return s->most_rejected && s->rejected == s->most_rejected;
}

double ds_space_progress(const ds_space *s) {
    double share = 0, width = 1;
    if (s->ended) return 1;
    for (uint32_t i = 0; s->started && i < s->dims.n && s->digits[i].n; i++) {
        width /= (double)s->digits[i].n;
        share += width * (double)s->digits[i].at;
    }
    return share;
}

ds_status ds_space_draw(ds_space *s, uint64_t seed, uint64_t k, ds_candidate *candidate,
                        bool *found, ds_error *err) {
    enum { MAX_ATTEMPTS = 1000000 };
    uint64_t draw = ds_hash_mix(ds_hash_mix(0, seed), k);
    *found = false;
    bool possible;
    DS_TRY(check_level(s, 0, &possible, err));
    for (uint64_t attempt = 0; attempt < MAX_ATTEMPTS && possible && !*found; attempt++) {
        bool ok = true;
        for (uint32_t dim = 0; dim < s->dims.n && ok; dim++) {
            ds_digit *digit = &s->digits[dim];
            DS_TRY(open_digit(s, dim, err));
            ok = digit->n > 0;
            if (!ok) break;
            digit->at = ds_hash_mix(ds_hash_mix(draw, attempt), dim) % digit->n;
            DS_TRY(take_digit(s, dim, &ok, err));
        }
        *found = ok;
    }
    if (*found) memcpy(candidate->at, s->current, s->dims.n * sizeof *s->current);
    return DS_OK;
}

/* ---- for searches ---- */

/* Sets the first `depth` dimensions, whose conditions are known to hold. */
static ds_status set_prefix(ds_space *s, const ds_choice *prefix, uint32_t depth, ds_error *err) {
    for (uint32_t dim = 0; dim < depth; dim++) {
        s->current[dim] = prefix[dim];
        DS_TRY(ds_space_set(s, &s->walk, dim, prefix[dim].value, prefix[dim].item, err));
    }
    return DS_OK;
}

ds_status ds_space_children(ds_space *s, const ds_choice *prefix, uint32_t depth, ds_arena *arena,
                            ds_choice **out, uint32_t *n, ds_error *err) {
    enum { MOST_CHILDREN = 1 << 20 };
    DS_VEC(ds_choice) children = {0};
    bool ok;
    DS_TRY(set_prefix(s, prefix, depth, err));
    DS_TRY(check_level(s, 0, &ok, err));
    DS_TRY(open_digit(s, depth, err));
    if (s->digits[depth].n > MOST_CHILDREN)
        return ds_error_set(err, DS_ERR_LIMIT, s->dims.at[depth].entry->loc,
                            "'%s' has %" PRIu64
                            " values; this method looks at all of them, at most "
                            "%d: --method grid or random",
                            s->dims.at[depth].entry->name, s->digits[depth].n, MOST_CHILDREN);
    for (ds_digit *digit = &s->digits[depth]; ok && digit->at < digit->n; digit->at++) {
        bool holds_here;
        DS_TRY(take_digit(s, depth, &holds_here, err));
        if (holds_here) DS_PUSH(arena, &children, s->current[depth]);
    }
    *out = children.at;
    *n = children.n;
    return DS_OK;
}

/* The place of the value in the domain of the opened digit; the domain's size: no such value. */
static uint64_t find_value(const ds_space *s, uint32_t dim, const ds_choice *value) {
    const ds_digit *digit = &s->digits[dim];
    int64_t v = value->value.i;
    switch (s->dims.at[dim].entry->domain) {
    case DS_DOMAIN_LIST:
        return value->item;
    case DS_DOMAIN_RANGE:
        if (v < digit->first || (v - digit->first) % digit->step != 0) return digit->n;
        return (uint64_t)((v - digit->first) / digit->step);
    case DS_DOMAIN_POWERS:
        for (uint64_t i = 0; i < digit->n; i++)
            if (digit->first << i == v) return i;
        return digit->n;
    case DS_DOMAIN_DIVISORS:
        for (uint64_t i = 0; i < digit->n; i++)
            if (digit->divisors.at[i] == v) return i;
        return digit->n;
    }
    return digit->n;
}

/* The k-th value of a digit to try: the preferred value first, then all values in a circle that
 * begins where `seed` says. */
static uint64_t nth_value(const ds_digit *digit, uint64_t first, uint64_t seed, uint32_t dim,
                          uint64_t k) {
    if (first < digit->n && k == 0) return first;
    uint64_t turned = k - (first < digit->n);
    uint64_t at = (ds_hash_mix(seed, dim) % digit->n + turned) % digit->n;
    return at;
}

ds_status ds_space_complete(ds_space *s, ds_candidate *candidate, uint32_t depth,
                            const ds_choice *prefer, uint64_t seed, bool *found, ds_error *err) {
    enum { MAX_VALUES = 100000 };
    uint32_t n = s->dims.n, dim = depth, tried = 0;
    uint64_t *next = ds_xcalloc(n + UINT32_C(1), sizeof *next);
    ds_status status = set_prefix(s, candidate->at, depth, err);
    bool opened = false;
    while (status == DS_OK && dim < n && tried < MAX_VALUES) {
        ds_digit *digit = &s->digits[dim];
        if (!opened) {
            next[dim] = 0;
            status = open_digit(s, dim, err);
            opened = true;
            continue;
        }
        uint64_t first = prefer ? find_value(s, dim, &prefer[dim]) : digit->n;
        bool ok = false;
        while (status == DS_OK && !ok && next[dim] < digit->n + (first < digit->n) &&
               tried++ < MAX_VALUES) {
            digit->at = nth_value(digit, first, seed, dim, next[dim]++);
            status = take_digit(s, dim, &ok, err);
        }
        if (ok) {
            dim++;
            opened = false;
        } else if (dim == depth) {
            break;
        } else {
            dim--;
        }
    }
    free(next);
    DS_TRY(status);
    *found = dim == n;
    if (*found) memcpy(candidate->at, s->current, n * sizeof *s->current);
    return DS_OK;
}

/* ---- a candidate by its values ---- */

static ds_status is_printed_as(ds_space *s, const ds_candidate *c, uint32_t dim, const char *value,
                               ds_buf *text, bool *same, ds_error *err) {
    DS_TRY(ds_space_set(s, &s->judge, dim, c->at[dim].value, c->at[dim].item, err));
    text->n = 0;
    ds_buf_put(text, "");
    ds_space_put_value(s, c, dim, text);
    *same = strcmp(text->text, value) == 0;
    return DS_OK;
}

/* Sets candidate->at[dim] to the value that prints as `value`, given the values of earlier
 * dimensions. */
static ds_status find_digit(ds_space *s, ds_candidate *candidate, uint32_t dim, const char *value,
                            ds_buf *text, bool *found, ds_error *err) {
    DS_TRY(set_prefix(s, candidate->at, dim, err));
    DS_TRY(open_digit(s, dim, err));
    *found = false;
    for (ds_digit *digit = &s->digits[dim]; !*found && digit->at < digit->n; digit->at++) {
        DS_TRY(take_digit(s, dim, found, err));
        if (!*found) continue;
        candidate->at[dim] = s->current[dim];
        DS_TRY(is_printed_as(s, candidate, dim, value, text, found, err));
    }
    return DS_OK;
}

ds_status ds_space_find(ds_space *s, const char *const *values, ds_candidate *candidate,
                        bool *found, ds_error *err) {
    ds_buf text = {0};
    candidate->number = 0;
    ds_status status = check_level(s, 0, found, err);
    for (uint32_t dim = 0; dim < s->dims.n && status == DS_OK && *found; dim++)
        status = find_digit(s, candidate, dim, values[dim], &text, found, err);
    ds_buf_deinit(&text);
    return status;
}

/* ---- afterwards ---- */

static ds_status set_all(ds_space *s, const ds_candidate *c, ds_error *err) {
    for (uint32_t i = 0; i < s->dims.n; i++)
        DS_TRY(ds_space_set(s, &s->judge, i, c->at[i].value, c->at[i].item, err));
    return DS_OK;
}

ds_status ds_space_admits(ds_space *s, const ds_candidate *c, ds_error *err) {
    bool ok;
    if (!s->doubtful) return DS_OK;
    DS_TRY(set_all(s, c, err));
    for (uint32_t i = 0; i < s->conditions.n; i++)
        if (s->conditions.at[i].level > 0 && s->conditions.at[i].level <= s->dims.n)
            DS_TRY(holds(s, &s->judge, s->conditions.at[i].entry, &ok, err));
    return DS_OK;
}

static ds_status judge_all(ds_space *s, ds_arena *arena, const char **failed, bool *subject,
                           ds_error *err) {
    *failed = NULL;
    *subject = true;
    for (uint32_t i = 0; i < s->conditions.n; i++) {
        const ds_condition *condition = &s->conditions.at[i];
        bool ok;
        if (condition->level <= s->dims.n) continue;
        DS_TRY(holds(s, &s->judge, condition->entry, &ok, err));
        if (ok) continue;
        if (condition->entry->kind == DS_SWEEP_SUBJECT) {
            *subject = false;
        } else if (!*failed) {
            ds_buf text = {0};
            ds_expr_print(&s->unit->exprs, condition->entry->a, &text);
            ds_unit_id unit = condition->entry->unit;
            *failed = ds_arena_printf(arena, "%s%s%s", text.text, unit ? " " : "",
                                      unit ? ds_unit_text(unit) : "");
            ds_buf_deinit(&text);
        }
    }
    return DS_OK;
}

ds_status ds_space_judge(ds_space *s, const ds_candidate *c, ds_metrics *m, ds_arena *arena,
                         const char **failed, bool *subject, ds_error *err) {
    DS_TRY(set_all(s, c, err));
    const ds_named *named = s->judge.named;
    m->world = s->world == UINT32_MAX ? 0 : named[s->world].value.i;
    m->cost_per_hour = s->price == UINT32_MAX ? 0 : named[s->price].value.r;
    double per_hour = 3600 * m->throughput_per_s;
    m->cost = per_hour > 0 ? m->cost_per_hour / per_hour : 0;
    for (int i = 0; i < DS_METRIC_COUNT; i++) {
        if (s->simulated[i] == UINT32_MAX) continue;
        ds_num *value = &s->judge.named[s->simulated[i]].value;
        *value = (ds_num){.kind = DS_NUM_REAL, .r = ds_metric_measure(m, (ds_metric_id)i)};
        if (ds_metric_at((ds_metric_id)i)->kind == DS_METRIC_IS_FLAG)
            *value = (ds_num){.kind = DS_NUM_INT, .i = value->r > 0};
    }
    return judge_all(s, arena, failed, subject, err);
}
