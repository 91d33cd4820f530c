/* Commands of a shell script: the subset of bash that launch scripts are written in.
 *
 *     assignments, arrays, `A+=(…)`, export     kept
 *     if, case, for over words, &&, ||          followed, where the condition is known
 *     functions, eval, bash -c                  followed
 *     any other command                         handed on, with its words; nothing is executed
 *
 * A part that is not taken is passed over by the same functions, with `run` false. A condition that
 * depends on a command that is not run counts as false, and is an error if a variable depends on the
 * condition. */
#include "ir/launch/shell_internal.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

typedef enum truth { NO, YES, MAYBE } truth;

ds_status ds_sh__error(const sh *s, ds_status code, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    ds_error_vset(s->err, code, (ds_loc){.line = s->line, .col = 1, .len = 1}, format, ap);
    va_end(ap);
    return code;
}

static ds_status list(sh *s, bool run, const char *until, truth *out);

/* ---- blanks, keywords ---- */

/* After the end of a line that has `<<EOF`: the text up to that word. */
static void skip_heredoc(sh *s) {
    size_t n = strlen(s->heredoc);
    while (s->at < s->n) {
        size_t from = s->at;
        while (s->at < s->n && s->text[s->at] != '\n') s->at++;
        size_t end = s->at;
        if (s->at < s->n) s->at++;
        s->line++;
        while (from < end && s->text[from] == '\t') from++;
        if (end - from == n && strncmp(s->text + from, s->heredoc, n) == 0) break;
    }
    s->heredoc = NULL;
}

static void new_line(sh *s) {
    s->at++;
    s->line++;
    if (s->heredoc) skip_heredoc(s);
}

/* Blanks, comments and continued lines; with `lines`, ends of lines and `;` too. */
static void blanks(sh *s, bool lines) {
    for (;;) {
        int c = ds_sh__peek(s, 0);
        if (c == ' ' || c == '\t' || c == '\r') {
            s->at++;
        } else if (c == '\\' && ds_sh__peek(s, 1) == '\n') {
            s->at += 2;
            s->line++;
        } else if (c == '\\' && ds_sh__peek(s, 1) == '\r' && ds_sh__peek(s, 2) == '\n') {
            s->at += 3;
            s->line++;
        } else if (c == '#') {
            while (s->at < s->n && s->text[s->at] != '\n') s->at++;
        } else if (lines && c == '\n') {
            new_line(s);
        } else {
            return;
        }
    }
}

static bool at_word(const sh *s, const char *word) {
    size_t n = strlen(word);
    return s->n - s->at >= n && strncmp(s->text + s->at, word, n) == 0 &&
           (ds_sh__ends_word(ds_sh__peek(s, n)) || !isalnum((unsigned char)word[0]));
}

static bool take_word(sh *s, const char *word) {
    if (!at_word(s, word)) return false;
    s->at += strlen(word);
    return true;
}

static ds_status need(sh *s, const char *word) {
    blanks(s, true);
    if (take_word(s, word)) return DS_OK;
    return ds_sh__error(s, DS_ERR_SYNTAX, "'%s' is missing here", word);
}

/* Is one of the words of `until` next? "then" or "elif else fi". */
static bool at_any(const sh *s, const char *until) {
    char word[16];
    for (const char *at = until; *at;) {
        size_t n = strcspn(at, " ");
        memcpy(word, at, n);
        word[n] = 0;
        if (at_word(s, word)) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

/* ---- conditions ---- */

typedef struct test {
    sh *s;
    sh_fields words;
    uint32_t at;
} test;

static truth negated(truth t) {
    return t == MAYBE ? MAYBE : t == YES ? NO : YES;
}

static truth compare(const char *a, const char *op, const char *b) {
    static const char *const ops[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    if (ds_launch__is_unknown(a) || ds_launch__is_unknown(b)) return MAYBE;
    if (strcmp(op, "=") == 0 || strcmp(op, "==") == 0) return fnmatch(b, a, 0) == 0 ? YES : NO;
    if (strcmp(op, "!=") == 0) return fnmatch(b, a, 0) == 0 ? NO : YES;
    long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    const bool holds[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(op, ops[i]) == 0) return holds[i] ? YES : NO;
    return MAYBE;
}

static truth any_of(test *t);

static truth primary(test *t) {
    uint32_t left = t->words.n - t->at;
    const char *const *w = (const char *const *)t->words.at + t->at;
    if (!left) return NO;
    if (strcmp(w[0], "!") == 0) {
        t->at++;
        return negated(primary(t));
    }
    if (strcmp(w[0], "(") == 0 && ++t->s->depth <= SH_MAX_DEPTH) {
        t->at++;
        truth inner = any_of(t);
        if (t->at < t->words.n) t->at++; /* ) */
        t->s->depth--;
        return inner;
    }
    if (left >= 3 && strcmp(w[1], "&&") != 0 && strcmp(w[1], "||") != 0 && strcmp(w[1], ")") != 0) {
        t->at += 3;
        return compare(w[0], w[1], w[2]);
    }
    if (left >= 2 && w[0][0] == '-' && w[0][1] && !w[0][2]) {
        t->at += 2;
        if (w[0][1] == 'z') return *w[1] ? NO : YES;
        if (w[0][1] == 'n') return *w[1] ? YES : NO;
        return YES; /* -f, -d, -e: files that a launch needs are there */
    }
    t->at++;
    return ds_launch__is_unknown(w[0]) ? MAYBE : *w[0] ? YES : NO;
}

static truth all_of(test *t) {
    truth value = primary(t);
    while (t->at < t->words.n &&
           (strcmp(t->words.at[t->at], "&&") == 0 || strcmp(t->words.at[t->at], "-a") == 0)) {
        t->at++;
        truth right = primary(t);
        value = value == NO || right == NO ? NO : value == YES && right == YES ? YES : MAYBE;
    }
    return value;
}

static truth any_of(test *t) {
    truth value = all_of(t);
    while (t->at < t->words.n &&
           (strcmp(t->words.at[t->at], "||") == 0 || strcmp(t->words.at[t->at], "-o") == 0)) {
        t->at++;
        truth right = all_of(t);
        value = value == YES || right == YES ? YES : value == NO && right == NO ? NO : MAYBE;
    }
    return value;
}

/* The words of `[ … ]` or `[[ … ]]`: each one text, so that an empty variable keeps its place. */
static ds_status test_words(sh *s, bool run, const char *close, test *t) {
    static const char *const operators[] = {"&&", "||", "(", ")", "<", ">"};
    for (;;) {
        blanks(s, true);
        if (s->at >= s->n) return ds_sh__error(s, DS_ERR_SYNTAX, "'%s' is missing", close);
        if (take_word(s, close)) return DS_OK;
        const char *word = NULL;
        for (size_t i = 0; i < sizeof operators / sizeof *operators && !word; i++)
            if (strncmp(s->text + s->at, operators[i], strlen(operators[i])) == 0 &&
                s->n - s->at >= strlen(operators[i]))
                word = operators[i];
        if (word)
            s->at += strlen(word);
        else if (ds_sh__ends_word(ds_sh__peek(s, 0)))
            return ds_sh__error(s, DS_ERR_SYNTAX, "'%s' is missing", close);
        else
            DS_TRY(ds_sh__text(s, run, &word));
        DS_PUSH(s->arena, &t->words, word);
    }
}

static ds_status condition(sh *s, bool run, const char *close, truth *out) {
    test t = {.s = s};
    bool before = s->in_test;
    s->in_test = true;
    ds_status status = test_words(s, run, close, &t);
    s->in_test = before;
    if (status == DS_OK && run) *out = any_of(&t);
    return status;
}

/* `((…))` as a command. */
static ds_status count_condition(sh *s, bool run, truth *out) {
    size_t from = s->at += 2;
    const char *value;
    while (s->at + 1 < s->n && strncmp(s->text + s->at, "))", 2) != 0)
        if (s->text[s->at++] == '\n') s->line++;
    if (s->at + 1 >= s->n) return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes '(('");
    const char *text = ds_arena_strndup(s->arena, s->text + from, s->at - from);
    s->at += 2;
    if (!run) return DS_OK;
    DS_TRY(ds_sh__arithmetic(s, text, &value));
    *out = ds_launch__is_unknown(value) ? MAYBE : strcmp(value, "0") == 0 ? NO : YES;
    return DS_OK;
}

/* ---- if, for, while, case, functions ---- */

/* A part that runs if the condition holds; where the condition is not known, the part is passed
 * over, and must not set anything. */
static ds_status branch(sh *s, bool run, truth holds, const char *until) {
    truth ignored;
    uint32_t line = s->line;
    bool before = s->assigns;
    s->assigns = false;
    DS_TRY(list(s, run && holds == YES, until, &ignored));
    bool sets = s->assigns;
    s->assigns = before || sets;
    if (run && holds == MAYBE && sets) {
        s->line = line;
        return ds_sh__error(s, DS_ERR_UNSUPPORTED,
                            "the condition depends on a command or an argument of the script, and "
                            "variables depend on the condition");
    }
    return DS_OK;
}

static ds_status if_command(sh *s, bool run) {
    bool open = run; /* no branch has been taken yet */
    truth before = NO;
    for (;;) {
        truth holds = NO;
        DS_TRY(list(s, open, "then", &holds));
        DS_TRY(need(s, "then"));
        DS_TRY(branch(s, open, holds, "elif else fi"));
        if (holds == MAYBE) before = MAYBE;
        if (holds == YES) open = false;
        blanks(s, true);
        if (!take_word(s, "elif")) break;
    }
    if (take_word(s, "else")) DS_TRY(branch(s, open, before == MAYBE ? MAYBE : YES, "fi"));
    return need(s, "fi");
}

static ds_status repeat(sh *s, bool run, const char *name, const sh_fields *values) {
    size_t at = s->at;
    uint32_t line = s->line, n = run ? values->n : 0;
    truth ignored;
    for (uint32_t i = 0; i < n && !s->ended; i++) {
        s->at = at;
        s->line = line;
        if (++s->steps > SH_MAX_STEPS)
            return ds_sh__error(s, DS_ERR_LIMIT, "a script of more than %d words", SH_MAX_STEPS);
        ds_sh__set(s, name, (const char *const *)&values->at[i], 1, false, false);
        DS_TRY(list(s, true, "done", &ignored));
    }
    if (!n) DS_TRY(list(s, false, "done", &ignored));
    return need(s, "done");
}

static ds_status for_command(sh *s, bool run) {
    const char *name;
    sh_fields values = {0};
    blanks(s, false);
    if (ds_sh__ends_word(ds_sh__peek(s, 0)))
        return ds_sh__error(s, DS_ERR_UNSUPPORTED, "only `for NAME in WORDS` is followed");
    DS_TRY(ds_sh__text(s, run, &name));
    blanks(s, false);
    if (take_word(s, "in"))
        for (;;) {
            blanks(s, false);
            int c = ds_sh__peek(s, 0);
            if (c == ';' || c == '\n' || c < 0) break;
            if (ds_sh__ends_word(c)) return ds_sh__error(s, DS_ERR_SYNTAX, "a wrong `for`");
            DS_TRY(ds_sh__word(s, run, &values));
        }
    blanks(s, false);
    if (ds_sh__peek(s, 0) == ';') s->at++;
    DS_TRY(need(s, "do"));
    return repeat(s, run, name, &values);
}

/* A loop is passed over if the condition is false at once, or sets nothing; or if the loop reads the
 * script's own arguments, which are not given here: the variables keep their defaults. */
static ds_status while_command(sh *s, bool run, bool is_until) {
    truth holds = NO, ignored;
    s->shifts = false;
    DS_TRY(list(s, run, "do", &holds));
    if (is_until) holds = negated(holds);
    DS_TRY(need(s, "do"));
    uint32_t line = s->line;
    bool before = s->assigns;
    s->assigns = false;
    DS_TRY(list(s, false, "done", &ignored));
    bool sets = s->assigns && !s->shifts;
    s->assigns = s->assigns || before;
    if (!run || holds == NO || !sets) return need(s, "done");
    s->line = line;
    return ds_sh__error(s, DS_ERR_UNSUPPORTED, "variables depend on a loop, which is not followed");
}

static ds_status case_pattern(sh *s, bool run, const char *value, bool *fits) {
    const char *pattern;
    blanks(s, true);
    if (ds_sh__peek(s, 0) == '(') s->at++;
    *fits = false;
    for (;;) {
        blanks(s, true);
        if (ds_sh__ends_word(ds_sh__peek(s, 0)))
            return ds_sh__error(s, DS_ERR_SYNTAX, "a wrong pattern of `case`");
        DS_TRY(ds_sh__text(s, run, &pattern));
        if (run && fnmatch(pattern, value, 0) == 0) *fits = true;
        blanks(s, true);
        int c = ds_sh__peek(s, 0);
        if (c != '|' && c != ')') return ds_sh__error(s, DS_ERR_SYNTAX, "a wrong `case`");
        s->at++;
        if (c == ')') return DS_OK;
    }
}

static ds_status case_command(sh *s, bool run) {
    const char *value;
    blanks(s, false);
    if (ds_sh__ends_word(ds_sh__peek(s, 0)))
        return ds_sh__error(s, DS_ERR_SYNTAX, "a wrong `case`");
    DS_TRY(ds_sh__text(s, run, &value));
    DS_TRY(need(s, "in"));
    bool open = run;
    for (;;) {
        bool fits;
        blanks(s, true);
        if (take_word(s, "esac")) return DS_OK;
        if (s->at >= s->n) return ds_sh__error(s, DS_ERR_SYNTAX, "'esac' is missing");
        DS_TRY(case_pattern(s, open, value, &fits));
        bool unknown = open && ds_launch__is_unknown(value);
        DS_TRY(branch(s, open, unknown ? MAYBE : fits ? YES : NO, ";; esac"));
        if (fits) open = false;
        take_word(s, ";;");
    }
}

/* `NAME() {`: the body is passed over, and read where the function is called. */
static ds_status function(sh *s, const char *name) {
    truth ignored;
    DS_TRY(need(s, "{"));
    sh_func func = {.name = name, .at = s->at, .line = s->line};
    DS_PUSH(s->arena, &s->funcs, func);
    bool before = s->assigns;
    DS_TRY(list(s, false, "}", &ignored));
    s->assigns = before;
    return need(s, "}");
}

static ds_status call(sh *s, const sh_func *func) {
    size_t at = s->at;
    uint32_t line = s->line;
    truth ignored;
    if (++s->depth > SH_MAX_DEPTH)
        return ds_sh__error(s, DS_ERR_LIMIT, "functions more than %d deep", SH_MAX_DEPTH);
    s->at = func->at;
    s->line = func->line;
    DS_TRY(list(s, true, "}", &ignored));
    s->depth--;
    s->at = at;
    s->line = line;
    return DS_OK;
}

ds_status ds_sh__run_text(sh *s, const char *text, uint32_t line) {
    const char *old = s->text;
    size_t n = s->n, at = s->at;
    uint32_t old_line = s->line;
    truth ignored;
    if (++s->depth > SH_MAX_DEPTH)
        return ds_sh__error(s, DS_ERR_LIMIT, "`eval` more than %d deep", SH_MAX_DEPTH);
    s->text = text;
    s->n = strlen(text);
    s->at = 0;
    s->line = line;
    DS_TRY(list(s, true, "", &ignored));
    s->depth--;
    s->text = old;
    s->n = n;
    s->at = at;
    s->line = old_line;
    return DS_OK;
}

/* ---- simple commands ---- */

/* The length of `NAME=` or `NAME+=` here; 0: no assignment. */
static size_t assignment_here(const sh *s, size_t *name_n) {
    size_t n = 0;
    if (isdigit(ds_sh__peek(s, 0))) return 0;
    while (ds_sh__peek(s, n) == '_' || isalnum(ds_sh__peek(s, n))) n++;
    *name_n = n;
    if (!n) return 0;
    if (ds_sh__peek(s, n) == '=') return n + 1;
    return ds_sh__peek(s, n) == '+' && ds_sh__peek(s, n + 1) == '=' ? n + 2 : 0;
}

static ds_status array_items(sh *s, bool run, sh_fields *items) {
    uint32_t line = s->line;
    for (;;) {
        blanks(s, true);
        int c = ds_sh__peek(s, 0);
        if (c == ')') break;
        if (ds_sh__ends_word(c)) {
            if (c < 0) s->line = line;
            return ds_sh__error(s, DS_ERR_SYNTAX, "nothing closes the array's '('");
        }
        DS_TRY(ds_sh__word(s, run, items));
    }
    s->at++;
    return DS_OK;
}

static ds_status assignment(sh *s, bool run, size_t n, size_t name_n) {
    const char *name = ds_arena_strndup(s->arena, s->text + s->at, name_n), *text = "";
    sh_fields items = {0};
    bool append = n > name_n + 1, is_array;
    s->at += n;
    if (!run) s->assigns = true;
    is_array = ds_sh__peek(s, 0) == '(';
    if (is_array) {
        s->at++;
        DS_TRY(array_items(s, run, &items));
    } else {
        if (!ds_sh__ends_word(ds_sh__peek(s, 0))) DS_TRY(ds_sh__text(s, run, &text));
        DS_PUSH(s->arena, &items, text);
    }
    if (run) ds_sh__set(s, name, (const char *const *)items.at, items.n, append, is_array);
    return DS_OK;
}

/* `> file`, `2>&1`, `<<EOF`; the words are no arguments. */
static ds_status redirection(sh *s, bool run, bool *found) {
    size_t n = 0;
    const char *word = "";
    while (isdigit(ds_sh__peek(s, n))) n++;
    int c = ds_sh__peek(s, n);
    *found = c == '<' || c == '>' || (c == '&' && ds_sh__peek(s, n + 1) == '>');
    if (!*found) return DS_OK;
    s->at += n;
    bool here = ds_sh__peek(s, 0) == '<' && ds_sh__peek(s, 1) == '<' && ds_sh__peek(s, 2) != '<';
    while (ds_sh__peek(s, 0) >= 0 && strchr("<>&|", ds_sh__peek(s, 0))) s->at++;
    if (here && ds_sh__peek(s, 0) == '-') s->at++;
    blanks(s, false);
    if (!ds_sh__ends_word(ds_sh__peek(s, 0))) DS_TRY(ds_sh__text(s, run || here, &word));
    if (here) s->heredoc = word;
    return DS_OK;
}

typedef struct simple {
    sh_fields words;
    uint32_t *lines;
    uint32_t cap;
} simple;

static ds_status read_words(sh *s, bool run, simple *c) {
    size_t n, name_n;
    for (;;) {
        bool redirects;
        blanks(s, false);
        DS_TRY(redirection(s, run, &redirects));
        if (redirects) continue;
        if (ds_sh__ends_word(ds_sh__peek(s, 0))) return DS_OK;
        bool declares = c->words.n && strcmp(c->words.at[0], "declares") == 0;
        if ((!c->words.n || declares) && (n = assignment_here(s, &name_n)) > 0) {
            DS_TRY(assignment(s, run, n, name_n));
            continue;
        }
        uint32_t before = c->words.n, line = s->line;
        DS_TRY(ds_sh__word(s, true, &c->words)); /* names of commands count in passed parts too */
        if (!before && c->words.n &&
            strstr(" export local declare readonly typeset ",
                   ds_arena_printf(s->arena, " %.40s ", c->words.at[0])))
            c->words.at[0] = "declares";
        if (c->words.n > c->cap) {
            uint32_t *more = DS_NEW_N(s->arena, uint32_t, 2 * c->words.n);
            if (before) memcpy(more, c->lines, before * sizeof *more);
            c->lines = more;
            c->cap = 2 * c->words.n;
        }
        for (uint32_t i = before; i < c->words.n; i++) c->lines[i] = line;
    }
}

static void keep(sh *s, const simple *c, uint32_t line) {
    ds_command command = {DS_NEW_N(s->arena, ds_word, c->words.n), c->words.n, line};
    for (uint32_t i = 0; i < c->words.n; i++)
        command.words[i] = (ds_word){c->words.at[i], c->lines[i]};
    DS_PUSH(s->arena, &s->out->commands, command);
}

static const char *joined(sh *s, const simple *c, uint32_t from) {
    ds_buf all = {0};
    ds_buf_put(&all, "");
    for (uint32_t i = from; i < c->words.n; i++)
        ds_buf_printf(&all, "%s%s", i > from ? " " : "", c->words.at[i]);
    const char *text = ds_arena_strdup(s->arena, all.text);
    ds_buf_deinit(&all);
    return text;
}

/* The index behind `-c` of a `bash -c TEXT`, `srun … bash -c TEXT`; 0: no such command. */
static uint32_t shell_text(const simple *c) {
    for (uint32_t i = 1; i + 1 < c->words.n; i++) {
        const char *name = strrchr(c->words.at[i - 1], '/');
        name = name ? name + 1 : c->words.at[i - 1];
        if ((strcmp(name, "bash") == 0 || strcmp(name, "sh") == 0) && c->words.at[i][0] == '-' &&
            strchr(c->words.at[i], 'c') && c->words.at[i][1] != '-')
            return i + 1;
    }
    return 0;
}

static ds_status run_simple(sh *s, const simple *c, uint32_t line, truth *out) {
    const char *name = c->words.at[0];
    uint32_t inner = shell_text(c);
    *out = strcmp(name, "false") == 0 ? NO : YES;
    if (strcmp(name, "exit") == 0 || strcmp(name, "return") == 0) {
        s->ended = strcmp(name, "exit") == 0 || !s->depth;
        return DS_OK;
    }
    if (strcmp(name, "unset") == 0) {
        for (uint32_t i = 1; i < c->words.n; i++)
            ds_sh__set(s, c->words.at[i], NULL, 0, false, true);
        return DS_OK;
    }
    if (strcmp(name, "eval") == 0) return ds_sh__run_text(s, joined(s, c, 1), line);
    if (inner) return ds_sh__run_text(s, c->words.at[inner], line);
    for (uint32_t i = 0; i < s->funcs.n; i++)
        if (strcmp(s->funcs.at[i].name, name) == 0) return call(s, &s->funcs.at[i]);
    if (strcmp(name, "declares") != 0) keep(s, c, line);
    return DS_OK;
}

static ds_status simple_command(sh *s, bool run, truth *out) {
    simple c = {0};
    uint32_t line = s->line;
    size_t from = s->at;
    DS_TRY(read_words(s, run, &c));
    *out = YES;
    if (ds_sh__peek(s, 0) == '(' && c.words.n == 1 && ds_sh__peek(s, 1) == ')') {
        s->at += 2;
        return function(s, c.words.at[0]);
    }
    if (s->at == from) return ds_sh__error(s, DS_ERR_SYNTAX, "a command is missing");
    for (uint32_t i = 0; i < c.words.n && !run; i++)
        if (strstr(c.words.at[i], ".py")) s->assigns = true;
    if (c.words.n && strcmp(c.words.at[0], "shift") == 0) s->shifts = true;
    return run && c.words.n ? run_simple(s, &c, line, out) : DS_OK;
}

/* ---- commands and lists ---- */

static ds_status group(sh *s, bool run, const char *close, truth *out) {
    s->at++;
    DS_TRY(list(s, run, close, out));
    return need(s, close);
}

static ds_status command(sh *s, bool run, truth *out) {
    *out = YES;
    if (++s->steps > SH_MAX_STEPS)
        return ds_sh__error(s, DS_ERR_LIMIT, "a script of more than %d words", SH_MAX_STEPS);
    if (at_word(s, "!") && ds_sh__peek(s, 1) == ' ') {
        s->at++;
        blanks(s, false);
        DS_TRY(command(s, run, out));
        *out = negated(*out);
        return DS_OK;
    }
    if (take_word(s, "if")) return if_command(s, run);
    if (take_word(s, "for")) return for_command(s, run);
    if (take_word(s, "while")) return while_command(s, run, false);
    if (take_word(s, "until")) return while_command(s, run, true);
    if (take_word(s, "case")) return case_command(s, run);
    if (take_word(s, "[[")) return condition(s, run, "]]", out);
    if (at_word(s, "[") && ds_sh__peek(s, 1) == ' ') {
        s->at++;
        return condition(s, run, "]", out);
    }
    if (ds_sh__peek(s, 0) == '(' && ds_sh__peek(s, 1) == '(') return count_condition(s, run, out);
    if (ds_sh__peek(s, 0) == '(') return group(s, run, ")", out);
    if (at_word(s, "{") && isspace(ds_sh__peek(s, 1))) return group(s, run, "}", out);
    if (take_word(s, "function")) {
        const char *name;
        blanks(s, false);
        if (ds_sh__ends_word(ds_sh__peek(s, 0)))
            return ds_sh__error(s, DS_ERR_SYNTAX, "a function without a name");
        DS_TRY(ds_sh__text(s, true, &name));
        blanks(s, false);
        if (ds_sh__peek(s, 0) == '(') s->at += 2;
        return function(s, name);
    }
    return simple_command(s, run, out);
}

/* `a && b || c`, `a | b`: what follows && runs if the left side is true, or not known to be false. */
static ds_status chain(sh *s, bool run, truth *out) {
    bool runs = run;
    *out = YES;
    for (;;) {
        truth value = YES;
        blanks(s, true);
        bool before = s->assigns;
        s->assigns = false;
        DS_TRY(command(s, runs && !s->ended, &value));
        if (run && !runs && *out == MAYBE && s->assigns)
            return ds_sh__error(s, DS_ERR_UNSUPPORTED,
                                "the condition before this part is not known, and variables depend "
                                "on the condition");
        s->assigns = s->assigns || before;
        if (runs) *out = value;
        blanks(s, false);
        int c = ds_sh__peek(s, 0), next = ds_sh__peek(s, 1);
        if (c == '&' && next == '&')
            runs = run && *out == YES;
        else if (c == '|' && next == '|')
            runs = run && *out == NO;
        else if (c == '|' || (c == '&' && next == '>'))
            runs = run;
        else
            return DS_OK;
        s->at += c == '|' && next != '|' && next != '&' ? 1 : 2;
    }
}

static ds_status list(sh *s, bool run, const char *until, truth *out) {
    *out = YES;
    if (++s->depth > SH_MAX_DEPTH)
        return ds_sh__error(s, DS_ERR_LIMIT, "commands more than %d deep", SH_MAX_DEPTH);
    for (;;) {
        blanks(s, true);
        if (s->at >= s->n || at_any(s, until)) break;
        DS_TRY(chain(s, run && !s->ended, out));
        blanks(s, false);
        int c = ds_sh__peek(s, 0);
        if (at_any(s, until)) break;
        if (c == ';' && ds_sh__peek(s, 1) != ';')
            s->at++;
        else if (c == '&')
            s->at++;
        else if (c >= 0 && c != '\n')
            return ds_sh__error(s, DS_ERR_SYNTAX, "'%c' is not understood here",
                                c > ' ' && c < 127 ? c : '?');
    }
    s->depth--;
    return DS_OK;
}

ds_status ds_launch__script(ds_arena *arena, const char *text, size_t n, ds_script *out,
                            ds_error *err) {
    sh s = {.arena = arena, .text = text, .n = n, .line = 1, .out = out, .err = err};
    truth ignored;
    *out = (ds_script){0};
    if (memchr(text, 0, n)) return ds_sh__error(&s, DS_ERR_DATA, "a byte 0: this is no script");
    return list(&s, true, "", &ignored);
}
