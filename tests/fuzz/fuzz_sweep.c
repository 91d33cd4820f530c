/* Rows of a sweep through resume, merge and replay, and edited sweeps from the start.
 *
 * The first byte says what: resume rows, merge shards, replay a row, or run an edited program. The
 * rows are those of a real sweep, edited by the other bytes, so that without edits all is accepted.
 * What must hold: rows as they were are accepted, and end as the undisturbed sweep does; what is
 * refused stays as it was; a finished sweep that goes on writes nothing new. */
#include "tests/fuzz/support.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

static const char program[] = "dir 1\n"
                              "param width = 64, dp = 1, z = 0, kind = \"a\"\n"
                              "func @mlp(%x: f32[8@dp, width]) -> f32[8@dp, width] {\n"
                              "  weight %w : f32[width, width]\n"
                              "  %y = matmul(%x, %w) : f32[8@dp, width]\n"
                              "  return %y\n"
                              "}\n"
                              "topology @box {\n"
                              "  device gpu[2] : \"A100-SXM4-80GB\"\n"
                              "  switch sw\n"
                              "  link gpu[i] -- sw : 300 GB/s, 1 us for i in 0..2\n"
                              "}\n"
                              "scenario {\n"
                              "  model = @mlp\n"
                              "  on = @box\n"
                              "  train { loss = mse, optimizer = sgd }\n"
                              "  strategy { dp = dp, zero = z }\n"
                              "}\n"
                              "sweep {\n"
                              "  dp in [1, 2]\n"
                              "  width in [64, 128]\n"
                              "  kind in [\"a\", \"b,c\"]\n"
                              "  z in 0..1\n"
                              "  minimize step_time\n"
                              "}\n";

static const char *sweep_file(void) {
    static const char *path;
    if (!path) path = fuzz_write("sweep.dir", program, sizeof program - 1);
    return path;
}

static int sweep(const char *file, const char *out, const char *how, const char *more) {
    const char *const words[] = {file, "-q", "-t1", "-o", out, "--database", fuzz_profiles(),
                                 how,  more, NULL};
    return fuzz_verb(cmd_sweep, words);
}

/* The rows of the sweep undisturbed, which the first run finds. */
static const ds_buf *rows(void) {
    static ds_buf all;
    if (all.n) return &all;
    if (sweep(sweep_file(), fuzz_path("all.csv"), "--overwrite", NULL) != 0)
        fuzz_fail("the sweep of the target fails", program);
    fuzz_read(fuzz_path("all.csv"), &all);
    return &all;
}

static bool same(const ds_buf *a, const ds_buf *b) {
    return a->n == b->n && (!a->n || memcmp(a->text, b->text, a->n) == 0);
}

static bool is_prefix(const ds_buf *of, const ds_buf *text) {
    return text->n <= of->n && (!text->n || memcmp(of->text, text->text, text->n) == 0);
}

/* ---- resume ---- */

static void resume(fuzz_bytes *bytes) {
    ds_buf before = {0}, after = {0};
    bool db = fuzz_byte(bytes) % 4 == 1;
    ds_buf_put_n(&before, rows()->text, rows()->n);
    fuzz_edit(bytes, ",", &before);
    const char *path = fuzz_write("resumed.csv", before.text, before.n);
    char option[128];
    snprintf(option, sizeof option, "--db=%s", fuzz_path("rows.db"));
    remove(fuzz_path("rows.db"));
    int exit_code = sweep(sweep_file(), path, "--resume", db ? option : NULL);
    fuzz_read(path, &after);
    if (exit_code != 0 && !same(&before, &after)) fuzz_fail("refused, but changed", before.text);
    if (is_prefix(rows(), &before) && (exit_code != 0 || !same(rows(), &after)))
        fuzz_fail("went on to other rows", after.text);
    size_t kept = before.n;
    while (kept && before.text[kept - 1] != '\n') kept--;
    bool has_kept = after.n >= kept && (!kept || memcmp(before.text, after.text, kept) == 0);
    if (exit_code == 0 && !is_prefix(rows(), &before) && !has_kept)
        fuzz_fail("went on, but lost rows", before.text);
    if (exit_code == 0 && !kept && !is_prefix(rows(), &before))
        fuzz_fail("took a text for rows", before.text);
    ds_buf_deinit(&before);
    ds_buf_deinit(&after);
}

/* ---- merge ---- */

/* Row i goes to shard i % n; all have the head. */
static void deal(uint32_t n, ds_buf *shards) {
    uint32_t i = 0;
    for (const char *at = rows()->text, *end; *at; at = end, i++) {
        end = strchr(at, '\n') + 1;
        for (uint32_t s = 0; s < n; s++)
            if (i == 0 || (i - 1) % n == s) ds_buf_put_n(&shards[s], at, (size_t)(end - at));
    }
}

static void merge(fuzz_bytes *bytes) {
    enum { MOST = 3 };
    static const char *const names[MOST] = {"shard1.csv", "shard2.csv", "shard3.csv"};
    ds_buf shards[MOST] = {{0}}, merged = {0};
    uint32_t n = 1 + fuzz_below(bytes, MOST), edited = fuzz_below(bytes, n);
    const char *words[12] = {"--overwrite", "-o", fuzz_path("merged.csv"), "--database",
                             fuzz_profiles()};
    uint32_t n_words = 5;
    if (fuzz_byte(bytes) % 2) words[n_words++] = "--count=8";
    bool untouched = !bytes->n;
    deal(n, shards);
    fuzz_edit(bytes, ",", &shards[edited]);
    for (uint32_t s = 0; s < n; s++)
        words[n_words++] = fuzz_write(names[s], shards[s].text, shards[s].n);
    int exit_code = fuzz_verb(cmd_merge, words);
    if (exit_code == 0) fuzz_read(fuzz_path("merged.csv"), &merged);
    if (untouched && !same(rows(), &merged)) fuzz_fail("shards are not put together", words[5]);
    for (uint32_t s = 0; s < n; s++) ds_buf_deinit(&shards[s]);
    ds_buf_deinit(&merged);
}

/* ---- replay ---- */

static void replay(fuzz_bytes *bytes) {
    char hash[20] = "";
    ds_buf text = {0};
    ds_buf_put_n(&text, rows()->text, rows()->n);
    uint32_t row = fuzz_below(bytes, 8);
    const char *at = rows()->text;
    for (uint32_t i = 0; i <= row; i++) at = strchr(at, '\n') + 1;
    const char *ok = strstr(at, ",ok,,"); /* status and reason; then the hash */
    if (ok) snprintf(hash, 17, "%s", ok + strlen(",ok,,"));
    bool untouched = !bytes->n && ok;
    fuzz_edit(bytes, ",", &text);
    const char *const words[] = {hash,     "--from",     fuzz_write("rows.csv", text.text, text.n),
                                 "--json", "--database", fuzz_profiles(),
                                 "--file", sweep_file(), NULL};
    int exit_code = fuzz_verb(cmd_replay, words);
    if (untouched && exit_code != 0) fuzz_fail("a row is not replayed", hash);
    ds_buf_deinit(&text);
}

/* ---- an edited program ---- */

static int64_t rows_in(const char *db_path) {
    sqlite3 *db;
    sqlite3_stmt *query;
    int64_t n = -1;
    if (sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT count(*) FROM rows", -1, &query, NULL) == SQLITE_OK) {
        if (sqlite3_step(query) == SQLITE_ROW) n = sqlite3_column_int64(query, 0);
        sqlite3_finalize(query);
    }
    sqlite3_close(db);
    return n;
}

/* A finished sweep that goes on has the same rows, and as many are in the database. */
static void run(fuzz_bytes *bytes) {
    ds_buf text = {0}, once = {0}, twice = {0};
    char option[128];
    snprintf(option, sizeof option, "--db=%s", fuzz_path("run.db"));
    ds_buf_put(&text, program);
    fuzz_edit(bytes, " ,;{}[]()=\"", &text);
    const char *file = fuzz_write("edited.dir", text.text, text.n), *out = fuzz_path("edited.csv");
    const char *const words[] = {file,          "-q",        "-t1",        "-o",
                                 out,           "--evals=4", "--database", fuzz_profiles(),
                                 "--overwrite", option,      NULL};
    const char *const again[] = {file,       "-q",        "-t1",        "-o",
                                 out,        "--evals=4", "--database", fuzz_profiles(),
                                 "--resume", option,      NULL};
    remove(out);
    remove(fuzz_path("run.db"));
    fuzz_verb(cmd_sweep, words);
    FILE *there = fopen(out, "rb");
    if (there) {
        fclose(there);
        fuzz_read(out, &once);
        int64_t n = rows_in(fuzz_path("run.db"));
        int exit_code = fuzz_verb(cmd_sweep, again);
        fuzz_read(out, &twice);
        if (!same(&once, &twice)) fuzz_fail("goes on to other rows", twice.text);
        if (exit_code == 0 && n != rows_in(fuzz_path("run.db")))
            fuzz_fail("another number of rows in the database", text.text);
    }
    ds_buf_deinit(&text);
    ds_buf_deinit(&once);
    ds_buf_deinit(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const what[])(fuzz_bytes *) = {resume, merge, replay, run};
    fuzz_bytes bytes = {data, size};
    what[fuzz_byte(&bytes) % FUZZ_COUNT(what)](&bytes);
    return 0;
}
