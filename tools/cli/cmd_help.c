/* distsim help VERB; man pages and shell completion, made of the tables of verbs and options. */
#include "ir/base/str.h"
#include "tools/cli/cli.h"

#include <ctype.h>
#include <string.h>

typedef struct arguments {
    cli_options common;
    const char *verb, *format;
} arguments;

static void read_word(void *arguments_, char *word, struct argp_state *state) {
    arguments *args = arguments_;
    if (args->verb) argp_error(state, "one VERB at a time: '%s' is too many", word);
    args->verb = word;
}

#define AT(member) offsetof(arguments, member)
static const cli_option option_rows[] = {
    {CLI_WORD, AT(format), "format", 0, "man|bash|zsh|fish",
     .help = "Print the man page of VERB or of distsim, or the completion of a shell"},
    {0}};

const cli_verb cli_verb_help = {.options = option_rows,
                                .word = read_word,
                                .may_lack_words = true,
                                .args_doc = "[VERB]",
                                .doc = "Explain a verb and its options; without VERB list the "
                                       "verbs."};

/* ---- man pages ---- */

/* Text as roff: hyphens stay hyphens, no line begins with a request. */
static void put_roff(const char *text, size_t n, ds_buf *out) {
    for (size_t i = 0; i < n && text[i]; i++) {
        bool begins = out->n && out->text[out->n - 1] == '\n';
        if (begins && (text[i] == '.' || text[i] == '\'')) ds_buf_put(out, "\\&");
        if (text[i] == '\v')
            ds_buf_put(out, "\n.PP\n");
        else if (text[i] == '\\')
            ds_buf_put(out, "\\e");
        else if (text[i] == '-')
            ds_buf_put(out, "\\-");
        else
            ds_buf_putc(out, text[i]);
    }
}

static void put_heading(const char *heading, ds_buf *out) {
    ds_buf_printf(out, "\n.SH %s\n", heading);
}

static void put_man_option(void *context, const cli_option *row) {
    ds_buf *out = context;
    ds_buf_put(out, ".TP\n\\fB");
    if (row->letter) ds_buf_printf(out, "\\-%c\\fR, \\fB", row->letter);
    ds_buf_put(out, "\\-\\-");
    put_roff(row->name, SIZE_MAX, out);
    ds_buf_put(out, "\\fR");
    if (row->value) {
        ds_buf_put(out, row->may_lack ? "[=\\fI" : "=\\fI");
        put_roff(row->value, SIZE_MAX, out);
        ds_buf_put(out, row->may_lack ? "\\fR]" : "\\fR");
    }
    ds_buf_putc(out, '\n');
    put_roff(row->help, SIZE_MAX, out);
    ds_buf_putc(out, '\n');
}

static void put_end(ds_buf *out) {
    put_heading("EXIT STATUS", out);
    ds_buf_put(out, "0 ok, 1 the program is wrong or does not fit, 2 usage, 3 internal.\n");
}

static void put_man_verb(const cli_verb_line *line, ds_buf *out) {
    ds_buf_printf(out, ".TH DISTSIM\\-%s 1 \"\" \"distsim " DS_VERSION "\"\n.SH NAME\n",
                  line->name);
    ds_buf_printf(out, "distsim\\-%s \\- ", line->name);
    put_roff(line->text, SIZE_MAX, out);
    put_heading("SYNOPSIS", out);
    ds_buf_printf(out, "\\fBdistsim %s\\fR [\\fIOPTION\\fR...] ", line->name);
    put_roff(line->verb->args_doc, SIZE_MAX, out);
    put_heading("DESCRIPTION", out);
    put_roff(line->verb->doc, SIZE_MAX, out);
    put_heading("OPTIONS", out);
    cli_each_option(line->verb, put_man_option, out);
    put_end(out);
    put_heading("SEE ALSO", out);
    ds_buf_put(out, ".BR distsim (1)\n");
}

static void put_man(ds_buf *out) {
    uint32_t n;
    const cli_verb_line *lines = cli_verb_lines(&n);
    ds_buf_put(out, ".TH DISTSIM 1 \"\" \"distsim " DS_VERSION "\"\n.SH NAME\n"
                    "distsim \\- simulate distributed deep\\-learning training\n.SH SYNOPSIS\n"
                    "\\fBdistsim\\fR \\fIVERB\\fR [\\fIOPTION\\fR...] [\\fIFILE\\fR...]\n"
                    ".SH DESCRIPTION\n"
                    "How long does a training step take on these devices, how much memory, and "
                    "why?\n");
    for (uint32_t i = 0; i < n; i++) {
        if (lines[i].group) {
            ds_buf_printf(out, ".SS %s\n", lines[i].group);
            continue;
        }
        ds_buf_printf(out, ".TP\n.BR distsim\\-%s (1)\n", lines[i].name);
        put_roff(lines[i].text, SIZE_MAX, out);
        ds_buf_putc(out, '\n');
    }
    put_end(out);
}

/* ---- completion ---- */

/* The words of an option, as "fluid|stepwise"; NULL: the value is no choice. */
static const char *words_of(const cli_option *row) {
    const char *words = row->words ? row->words : row->value;
    return row->kind == CLI_WORD && words ? words : NULL;
}

static void put_spaced(const char *words, ds_buf *out) {
    for (; *words; words++) ds_buf_putc(out, *words == '|' ? ' ' : *words);
}

static void put_bash_option(void *context, const cli_option *row) {
    ds_buf_printf(context, " --%s", row->name);
}

static void put_bash_words(void *context, const cli_option *row) {
    if (!words_of(row)) return;
    ds_buf_printf(context, "        --%s) words='", row->name);
    put_spaced(words_of(row), context);
    ds_buf_put(context, "' ;;\n");
}

static void put_bash(ds_buf *out) {
    uint32_t n;
    const cli_verb_line *lines = cli_verb_lines(&n);
    ds_buf_put(out,
               "# bash completion for distsim\n_distsim() {\n"
               "    local cur prev words=\n"
               "    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
               "    COMPREPLY=()\n"
               "    if [ \"$cur\" = = ]; then cur=; fi\n"
               "    if [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
               "    if [ \"$COMP_CWORD\" = 1 ] || [ \"${COMP_WORDS[1]}\" = help ]; then words='");
    for (uint32_t i = 0; i < n; i++)
        if (!lines[i].group) ds_buf_printf(out, " %s", lines[i].name);
    ds_buf_put(out, "'\n    else case ${COMP_WORDS[1]} in\n");
    for (uint32_t i = 0; i < n; i++) {
        if (lines[i].group) continue;
        ds_buf_printf(out, "    %s) case $prev in\n", lines[i].name);
        cli_each_option(lines[i].verb, put_bash_words, out);
        ds_buf_put(out, "        *) [[ $cur == -* ]] && words='--help");
        cli_each_option(lines[i].verb, put_bash_option, out);
        ds_buf_put(out, "' ;;\n        esac ;;\n");
    }
    ds_buf_put(out,
               "    esac; fi\n"
               "    if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "    else COMPREPLY=($(compgen -f -- \"$cur\")); fi\n"
               "}\ncomplete -o filenames -F _distsim distsim\n");
}

/* The first sentence of a help text, fit for single quotes and brackets. */
static void put_sentence(const char *text, ds_buf *out) {
    for (; *text && !(*text == '.' && isspace((unsigned char)text[1])) && *text != '\n'; text++)
        if (!strchr("'[]:`\\", *text)) ds_buf_putc(out, *text);
}

static void put_zsh_option(void *context, const cli_option *row) {
    ds_buf *out = context;
    ds_buf_printf(out, "        '*--%s%s[", row->name, row->value ? "=" : "");
    put_sentence(row->help, out);
    ds_buf_putc(out, ']');
    if (row->value && words_of(row)) {
        ds_buf_put(out, ":value:(");
        put_spaced(words_of(row), out);
        ds_buf_putc(out, ')');
    } else if (row->value) {
        ds_buf_put(out, ":value:_files");
    }
    ds_buf_put(out, "' \\\n");
}

static void put_zsh(ds_buf *out) {
    uint32_t n;
    const cli_verb_line *lines = cli_verb_lines(&n);
    ds_buf_put(out, "#compdef distsim\nlocal -a verbs\nverbs=(\n");
    for (uint32_t i = 0; i < n; i++) {
        if (lines[i].group) continue;
        ds_buf_printf(out, "    '%s:", lines[i].name);
        put_sentence(lines[i].text, out);
        ds_buf_put(out, "'\n");
    }
    ds_buf_put(out, ")\nif (( CURRENT == 2 )) || [[ $words[2] == help ]]; then\n"
                    "    _describe verb verbs\n    return\nfi\ncase $words[2] in\n");
    for (uint32_t i = 0; i < n; i++) {
        if (lines[i].group) continue;
        ds_buf_printf(out, "    %s) _arguments \\\n", lines[i].name);
        cli_each_option(lines[i].verb, put_zsh_option, out);
        ds_buf_put(out, "        '*:file:_files' ;;\n");
    }
    ds_buf_put(out, "esac\n");
}

typedef struct fish {
    const char *verb;
    ds_buf *out;
} fish;

static void put_fish_option(void *context, const cli_option *row) {
    const fish *f = context;
    ds_buf_printf(f->out, "complete -c distsim -n '__fish_seen_subcommand_from %s' -l %s", f->verb,
                  row->name);
    if (row->letter) ds_buf_printf(f->out, " -s %c", row->letter);
    if (row->value && !row->may_lack) ds_buf_put(f->out, words_of(row) ? " -x -a '" : " -r");
    if (row->value && !row->may_lack && words_of(row)) {
        put_spaced(words_of(row), f->out);
        ds_buf_putc(f->out, '\'');
    }
    ds_buf_put(f->out, " -d '");
    put_sentence(row->help, f->out);
    ds_buf_put(f->out, "'\n");
}

static void put_fish(ds_buf *out) {
    uint32_t n;
    const cli_verb_line *lines = cli_verb_lines(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (lines[i].group) continue;
        ds_buf_printf(out, "complete -c distsim -n __fish_use_subcommand -f -a %s -d '",
                      lines[i].name);
        put_sentence(lines[i].text, out);
        ds_buf_put(out, "'\n");
        cli_each_option(lines[i].verb, put_fish_option, &(fish){lines[i].name, out});
    }
}

/* ---- the verb ---- */

/* `distsim help run` is `distsim run --help`. */
static int explain(const cli_verb_line *line) {
    char name[] = "distsim", option[] = "--help";
    return cli_run_verb(line, 2, (char *[]){name, option, NULL});
}

int cmd_help(int argc, char **argv) {
    arguments args = {0};
    cli_parse(&cli_verb_help, argc, argv, &args);
    const cli_verb_line *line = args.verb ? cli_find_verb(args.verb) : NULL;
    cli_options_deinit(&args.common);
    if (args.verb && !line) return 2;
    if (!args.format) {
        if (line) return explain(line);
        cli_put_usage(stdout);
        return 0;
    }
    ds_buf out = {0};
    if (strcmp(args.format, "man") == 0)
        line ? put_man_verb(line, &out) : put_man(&out);
    else if (strcmp(args.format, "bash") == 0)
        put_bash(&out);
    else if (strcmp(args.format, "zsh") == 0)
        put_zsh(&out);
    else
        put_fish(&out);
    fputs(out.text, stdout);
    ds_buf_deinit(&out);
    return 0;
}
