/* See support.h. */
#include "tests/fuzz/support.h"

#include "ir/base/file.h"
#include "ir/import/import.h"
#include "ir/lang/lang.h"
#include "ir/verify/verify.h"
#include "sim/report/report.h"
#include "sim/topo/topo.h"

#include <dirent.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fuzz_fail(const char *what, const char *detail) {
    fprintf(stderr, "%s\n%s\n", what, detail);
    abort();
}

/* ---- choices ---- */

uint8_t fuzz_byte(fuzz_bytes *bytes) {
    if (!bytes->n) return 0;
    bytes->n--;
    return *bytes->at++;
}

uint32_t fuzz_below(fuzz_bytes *bytes, uint32_t n) {
    uint32_t value = fuzz_byte(bytes);
    if (n > 256) value = value << 8 | fuzz_byte(bytes);
    return value % n;
}

typedef struct piece {
    const char *text;
    size_t n;
} piece;

#define PIECE(literal)                                                                             \
    { literal, sizeof(literal) - 1 }
static const piece values[] = {
    PIECE("0"),
    PIECE("1"),
    PIECE("2"),
    PIECE("3"),
    PIECE("4"),
    PIECE("8"),
    PIECE("-1"),
    PIECE("64"),
    PIECE("1000"),
    PIECE("2147483647"),
    PIECE("2147483648"),
    PIECE("4294967295"),
    PIECE("4294967296"),
    PIECE("9007199254740992"),
    PIECE("9007199254740993"),
    PIECE("4611686018427387903"),
    PIECE("4611686018427387904"),
    PIECE("9223372036854775807"),
    PIECE("9223372036854775808"),
    PIECE("-9223372036854775808"),
    PIECE("18446744073709551616"),
    PIECE("1e-320"),
    PIECE("1e-9"),
    PIECE("0.5"),
    PIECE("1.5"),
    PIECE("1e18"),
    PIECE("1e308"),
    PIECE("1e999"),
    PIECE("nan"),
    PIECE("inf"),
    PIECE("-inf"),
    PIECE("-0"),
    PIECE("0x10"),
    PIECE(" 1"),
    PIECE(""),
    PIECE(" "),
    PIECE("\""),
    PIECE("\"\""),
    PIECE("a\"b"),
    PIECE(","),
    PIECE("a,b"),
    PIECE("\n"),
    PIECE("a\nb"),
    PIECE("\r"),
    PIECE("a\r\nb"),
    PIECE("\0"),
    PIECE("a\0b"),
    PIECE("\t"),
    PIECE(";"),
    PIECE("="),
    PIECE("x=1"),
    PIECE("dp=2"),
    PIECE("../x"),
    PIECE("%s%n"),
    PIECE("\xff\xfe"),
    PIECE("\xc3\xa9"),
    PIECE("true"),
    PIECE("ok"),
    PIECE("-"),
    PIECE("0-3"),
    PIECE("f32"),
    PIECE("bf16"),
    PIECE("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
          "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")};

enum { N_NUMBERS = 33 }; /* of them the first */

static void put_number(fuzz_bytes *bytes, ds_buf *out) {
    const piece *value = &values[fuzz_below(bytes, N_NUMBERS)];
    ds_buf_put_n(out, value->text, value->n);
}

void fuzz_value(fuzz_bytes *bytes, ds_buf *out) {
    const piece *value = &values[fuzz_below(bytes, FUZZ_COUNT(values))];
    ds_buf_put_n(out, value->text, value->n);
}

/* ---- edits ---- */

typedef struct span {
    size_t from, to;
} span;

/* Puts `n` bytes in the place of a span. */
static void splice(ds_buf *text, span at, const char *with, size_t n) {
    ds_buf out = {0};
    ds_buf_put_n(&out, text->text, at.from);
    ds_buf_put_n(&out, with, n);
    ds_buf_put_n(&out, text->text + at.to, text->n - at.to);
    ds_buf_deinit(text);
    *text = out;
}

/* The i-th piece of text[in.from, in.to) between separators; false: there are fewer. */
static bool find_piece(const ds_buf *text, span in, const char *separators, uint32_t i, span *out) {
    *out = (span){in.from, in.from};
    for (size_t at = in.from; at <= in.to; at++) {
        bool ends = at == in.to || (text->text[at] && strchr(separators, text->text[at]));
        if (!ends) continue;
        out->to = at;
        if (i-- == 0) return true;
        out->from = at + 1;
    }
    return false;
}

static uint32_t count_pieces(const ds_buf *text, span in, const char *separators) {
    uint32_t n = 1;
    for (size_t at = in.from; at < in.to; at++)
        n += text->text[at] && strchr(separators, text->text[at]);
    return n;
}

static span choose(fuzz_bytes *bytes, const ds_buf *text, span in, const char *separators) {
    span chosen;
    uint32_t n = count_pieces(text, in, separators);
    find_piece(text, in, separators, fuzz_below(bytes, n), &chosen);
    return chosen;
}

static span choose_line(fuzz_bytes *bytes, const ds_buf *text) {
    span line = choose(bytes, text, (span){0, text->n}, "\n");
    if (line.to < text->n) line.to++; /* with its end */
    return line;
}

/* A line goes, comes twice, or another one's text comes before it. */
static void edit_lines(fuzz_bytes *bytes, ds_buf *text) {
    span line = choose_line(bytes, text), other = line;
    uint8_t what = fuzz_byte(bytes);
    ds_buf with = {0};
    if (what % 3 == 0) {
        splice(text, line, "", 0);
        return;
    }
    if (what % 3 == 1) other = choose_line(bytes, text);
    ds_buf_put_n(&with, text->text + other.from, other.to - other.from);
    splice(text, (span){line.from, line.from}, with.text, with.n);
    ds_buf_deinit(&with);
}

static void edit_bytes(fuzz_bytes *bytes, ds_buf *text) {
    size_t at = fuzz_below(bytes, text->n < 65535 ? (uint32_t)text->n + 1 : 65536);
    uint8_t what = fuzz_byte(bytes);
    char c = (char)fuzz_byte(bytes);
    if (what % 4 == 0) splice(text, (span){at, text->n}, "", 0);
    if (what % 4 == 1 && at < text->n) splice(text, (span){at, at + 1}, &c, 1);
    if (what % 4 == 2) splice(text, (span){at, at}, &c, 1);
    if (what % 4 == 3 && at < text->n) splice(text, (span){at, at + 1}, "", 0);
}

static void put_quoted(const ds_buf *value, ds_buf *out) {
    ds_buf_putc(out, '"');
    for (size_t i = 0; i < value->n; i++) {
        if (value->text[i] == '"') ds_buf_putc(out, '"');
        ds_buf_putc(out, value->text[i]);
    }
    ds_buf_putc(out, '"');
}

/* A number in the cell changes a little. */
static void put_near(fuzz_bytes *bytes, const char *cell, size_t n, ds_buf *out) {
    char room[32];
    snprintf(room, sizeof room, "%.*s", (int)(n < 31 ? n : 31), cell);
    int64_t value = strtoll(room, NULL, 10);
    uint8_t what = fuzz_byte(bytes);
    uint64_t v = (uint64_t)value;
    uint64_t near[] = {v + 1, v - 1, 2 * v, v / 2, 0 - v, v << 32, v + ((uint64_t)1 << 62), v * v};
    ds_buf_put_int(out, (int64_t)near[what % FUZZ_COUNT(near)]);
}

static void edit_cell(fuzz_bytes *bytes, uint8_t how, const char *separators, ds_buf *text) {
    span line = choose(bytes, text, (span){0, text->n}, "\n");
    span cell = choose(bytes, text, line, separators), other;
    ds_buf with = {0}, quoted = {0};
    if (how < 2) fuzz_value(bytes, &with);
    if (how == 2 || how == 3) put_number(bytes, &with);
    if (how == 4) {
        char c[4];
        size_t n = fuzz_below(bytes, sizeof c);
        for (size_t i = 0; i < n; i++) c[i] = (char)fuzz_byte(bytes);
        ds_buf_put_n(&with, c, n);
    }
    if (how == 5) put_near(bytes, text->text + cell.from, cell.to - cell.from, &with);
    if (how == 6) {
        other = choose(bytes, text, choose(bytes, text, (span){0, text->n}, "\n"), separators);
        ds_buf_put_n(&with, text->text + other.from, other.to - other.from);
    }
    if (how == 0 && strchr(separators, ',')) put_quoted(&with, &quoted);
    const ds_buf *put = quoted.n ? &quoted : &with;
    splice(text, cell, put->text ? put->text : "", put->n);
    ds_buf_deinit(&with);
    ds_buf_deinit(&quoted);
}

void fuzz_edit(fuzz_bytes *bytes, const char *separators, ds_buf *text) {
    uint8_t few = fuzz_byte(bytes);
    int n = few < 240 ? 1 + few % 3 : few - 236;
    for (int i = 0; i < n && bytes->n; i++) {
        uint8_t how = fuzz_byte(bytes) % 10;
        if (!text->text) ds_buf_put(text, "");
        if (how < 7)
            edit_cell(bytes, how, separators, text);
        else if (how < 9)
            edit_lines(bytes, text);
        else
            edit_bytes(bytes, text);
    }
}

/* ---- files ---- */

static char folder[64];

static void remove_folder(void) {
    char path[512];
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        if (entry->d_name[0] != '.' && unlink(path) != 0) perror(path);
    }
    closedir(dir);
    rmdir(folder);
}

static void make_folder(void) {
    if (*folder) return;
    const char *tmp = getenv("TMPDIR");
    if (!tmp) tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/fuzz.XXXXXX", tmp);
    if (!mkdtemp(folder)) fuzz_fail("no folder of its own", folder);
    atexit(remove_folder);
}

const char *fuzz_path(const char *name) {
    static char paths[32][96];
    uint32_t i = 0;
    make_folder();
    size_t n = strlen(folder) + 1;
    for (; i < FUZZ_COUNT(paths) && *paths[i]; i++)
        if (strcmp(paths[i] + n, name) == 0) return paths[i];
    if (i == FUZZ_COUNT(paths)) fuzz_fail("too many files", name);
    snprintf(paths[i], sizeof paths[i], "%s/%s", folder, name);
    return paths[i];
}

const char *fuzz_write(const char *name, const char *text, size_t n) {
    const char *path = fuzz_path(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(n ? text : "", 1, n, file) != n || fclose(file) != 0)
        fuzz_fail("cannot write", path);
    return path;
}

void fuzz_read(const char *path, ds_buf *out) {
    ds_error err;
    ds_buf_put(out, "");
    if (ds_file_read(path, DS_NOWHERE, (size_t)1 << 30, out, &err) != DS_OK)
        fuzz_fail("cannot read", err.message);
}

void fuzz_read_lines(const char *path, uint32_t head, uint32_t first, uint32_t n, ds_buf *out) {
    ds_buf all = {0}, whole = {0};
    ds_buf_printf(&whole, "%s/%s", DS_SOURCE_DIR, path);
    fuzz_read(whole.text, &all);
    uint32_t i = 0;
    for (char *at = all.text, *end; *at; at = end, i++) {
        end = at + strcspn(at, "\n");
        end += *end == '\n';
        if (i < head || (i >= first && i - first < n)) ds_buf_put_n(out, at, (size_t)(end - at));
    }
    ds_buf_deinit(&whole);
    ds_buf_deinit(&all);
}

static void execute(sqlite3 *db, const char *sql) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fuzz_fail(sql, sqlite3_errmsg(db));
}

const char *fuzz_profiles(void) {
    static const char *path;
    if (path) return path;
    ds_buf all = {0};
    sqlite3 *db;
    fuzz_read(DS_BUILD_PROFILES, &all);
    path = fuzz_write("profiles.db", all.text, all.n);
    ds_buf_deinit(&all);
    if (sqlite3_open(path, &db) != SQLITE_OK) fuzz_fail("cannot open", path);
    execute(db, "PRAGMA journal_mode = OFF; PRAGMA foreign_keys = OFF;"
                "DELETE FROM profile WHERE name NOT IN"
                " ('A100-SXM4-80GB', 'A100-vTrain-node', 'A100-Selene-Megatron-2022', 'localhost');"
                "CREATE TEMP TABLE new AS SELECT id, row_number() OVER (ORDER BY id) AS at"
                " FROM profile;"
                "UPDATE profile SET id = (SELECT at FROM new WHERE new.id = profile.id)");
    const char *tables[] = {"op_profile",         "efficiency_fit",     "gemm_fit",
                            "attention_fit",      "collective_profile", "collective_fit",
                            "collective_protocol"};
    for (uint32_t i = 0; i < FUZZ_COUNT(tables); i++) {
        char sql[256];
        snprintf(sql, sizeof sql,
                 "DELETE FROM %s WHERE profile NOT IN (SELECT id FROM new);"
                 "UPDATE %s SET profile = (SELECT at FROM new WHERE id = profile)",
                 tables[i], tables[i]);
        execute(db, sql);
    }
    execute(db, "DELETE FROM op_profile WHERE rowid % 97 <> 0;"
                "DELETE FROM collective_profile WHERE rowid % 23 <> 0; VACUUM");
    sqlite3_close(db);
    return path;
}

/* ---- verbs ---- */

static struct calls {
    const char *name;
    uint64_t n, good;
} calls[8];

static void say_calls(void) {
    for (uint32_t i = 0; i < FUZZ_COUNT(calls) && calls[i].name; i++)
        fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " accepted\n", calls[i].name, calls[i].good,
                calls[i].n);
}

static void count_call(const char *name, bool good) {
    uint32_t i = 0;
    if (!calls[0].name) atexit(say_calls);
    while (calls[i].name && strcmp(calls[i].name, name) != 0) i++;
    calls[i].name = name;
    calls[i].n++;
    calls[i].good += good;
}

/* stdout and stderr lead nowhere, also for those who write to descriptor 1; then back again.
 * Descriptor 2 stays: sanitizers and libFuzzer write there. */
static void silence(bool begin) {
    static FILE *nowhere, *out, *err;
    static int descriptor = -1;
    if (getenv("DS_FUZZ_SHOW")) return;
    if (!nowhere && !(nowhere = fopen("/dev/null", "w"))) fuzz_fail("cannot open", "/dev/null");
    fflush(stdout);
    if (begin) {
        out = stdout;
        err = stderr;
        descriptor = dup(STDOUT_FILENO);
        dup2(fileno(nowhere), STDOUT_FILENO);
        stdout = stderr = nowhere;
    } else {
        stdout = out;
        stderr = err;
        dup2(descriptor, STDOUT_FILENO);
        close(descriptor);
    }
}

int fuzz_call(const char *name, int (*verb)(int argc, char **argv), const char *const *words) {
    enum { MOST = 32 };
    char *argv[MOST + 2] = {strdup("distsim fuzz")};
    int argc = 1;
    for (; words[argc - 1] && argc <= MOST; argc++) argv[argc] = strdup(words[argc - 1]);
    silence(true);
    int exit_code = verb(argc, argv);
    silence(false);
    for (int i = 0; i < MOST + 2; i++) free(argv[i]);
    if (exit_code < 0 || exit_code > 2) fuzz_fail("an internal error", name);
    count_call(name, exit_code == 0);
    return exit_code;
}

/* ---- what importers write ---- */

typedef struct imported {
    ds_unit *unit;
    ds_binding binding;
    ds_topo *topo;
} imported;

static void open_imported(const ds_buf *text, bool has_imports, imported *out) {
    ds_unit *unit = out->unit = ds_unit_new();
    ds_module *module = ds_unit_add_module(unit, "imported.dir", text->text, text->n);
    ds_error err = {0};
    ds_diags diags;
    ds_buf again = {0};
    ds_diags_init(&diags);
    if (ds_parse(module, &err) != DS_OK) fuzz_fail(err.message, text->text);
    ds_print_module(module, &again);
    if (again.n != text->n || memcmp(again.text, text->text, text->n) != 0)
        fuzz_fail("is not canonical", text->text);
    if (!has_imports && ds_verify(unit, &diags) != DS_OK)
        fuzz_fail(diags.all.at[0].message, text->text);
    ds_buf_deinit(&again);
    ds_diags_deinit(&diags);
}

void fuzz_check_program(const ds_buf *text, bool has_imports) {
    imported program = {0};
    open_imported(text, has_imports, &program);
    ds_unit_free(program.unit);
}

static void build(const ds_buf *text, imported *out) {
    ds_error err = {0};
    open_imported(text, false, out);
    const ds_topology *topology = out->unit->modules.at[0]->topologies.at[0];
    if (ds_bind(out->unit, NULL, 0, &out->binding, &err) != DS_OK ||
        ds_topo_build(&out->binding, topology, &out->topo, &err) != DS_OK)
        fuzz_fail(err.message, text->text);
}

void fuzz_check_topology(const ds_buf *text) {
    imported first = {0}, second = {0};
    ds_buf graphml = {0}, again = {0};
    ds_import_options none = {0};
    ds_error err = {0};
    build(text, &first);
    ds_topo_print_graphml(first.topo, &graphml, &err);
    if (ds_import_graphml(graphml.text, graphml.n, &none, &again, &err) != DS_OK)
        fuzz_fail(err.message, graphml.text);
    build(&again, &second);
    if (ds_topo_n_vertices(first.topo) != ds_topo_n_vertices(second.topo) ||
        ds_topo_n_links(first.topo) != ds_topo_n_links(second.topo))
        fuzz_fail("comes back from GraphML as another topology", graphml.text);
    ds_topo_free(first.topo);
    ds_topo_free(second.topo);
    ds_unit_free(first.unit);
    ds_unit_free(second.unit);
    ds_buf_deinit(&graphml);
    ds_buf_deinit(&again);
}

/* ---- results ---- */

void fuzz_check_result(const ds_result *r) {
    for (uint32_t c = 0; c < r->plan->n_classes; c++) {
        const ds_account *a = &r->accounts[c];
        int64_t sum = -1;
        if (a->compute_ps < 0 || a->exposed_comm_ps < 0 || a->idle_ps < 0 ||
            __builtin_add_overflow(a->compute_ps, a->exposed_comm_ps, &sum) ||
            __builtin_add_overflow(sum, a->idle_ps, &sum) || sum != r->run.step_ps)
            fuzz_fail("times do not add up to the step", "");
    }
}
