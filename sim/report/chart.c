/* Memory over a step as text: a letter for each category, the most of each slice of time. */
#include "sim/report/internal.h"

#include <string.h>

enum { COLUMNS = 64, ROWS = 10 };

/* From the bottom of a column to the top: first what changes least. */
static const struct {
    int category;
    char letter;
} stack[DS_MEM_CATEGORY_COUNT] = {
    {DS_MEM_CONTEXT, 'c'},   {DS_MEM_COMMUNICATOR, 'm'}, {DS_MEM_FRAMEWORK, 'f'},
    {DS_CAT_WEIGHT, 'w'},    {DS_CAT_OPTIMIZER, 'o'},    {DS_CAT_INPUT, 'i'},
    {DS_CAT_GRADIENT, 'g'},  {DS_CAT_BUFFER, 'b'},       {DS_CAT_ACTIVATION, 'a'},
    {DS_MEM_WORKSPACE, 's'}, {DS_MEM_UNUSED, 'u'},
};

typedef struct column {
    int64_t bytes;
    int64_t by[DS_MEM_CATEGORY_COUNT];
} column;

static void keep_most(column *c, const ds_memory_walk *walk) {
    if (walk->bytes <= c->bytes) return;
    c->bytes = walk->bytes;
    memcpy(c->by, walk->by, sizeof c->by);
}

/* Where slice i of the step begins. */
static int64_t begin_of(int64_t step_ps, int64_t i) {
    return step_ps / COLUMNS * i + step_ps % COLUMNS * i / COLUMNS;
}

/* The memory at the begin of a slice counts for the slice, and each change inside. */
static void fill_columns(const ds_result *r, column *columns) {
    ds_memory_walk walk;
    ds_report__memory_start(r, r->fullest, &walk);
    bool more = ds_report__memory_next(&walk);
    column last = {0};
    for (int i = 0; i < COLUMNS; i++) {
        int64_t begin = begin_of(r->run.step_ps, i), end = begin_of(r->run.step_ps, i + 1);
        for (; more && walk.time_ps <= begin; more = ds_report__memory_next(&walk)) {
            last.bytes = -1;
            keep_most(&last, &walk);
        }
        columns[i] = last;
        for (; more && walk.time_ps < end; more = ds_report__memory_next(&walk)) {
            keep_most(&columns[i], &walk);
            last.bytes = -1;
            keep_most(&last, &walk);
        }
    }
}

/* The letter of the category at a height of a column; a blank above its top. */
static char letter_at(const column *c, double height) {
    double top = 0;
    for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) {
        top += (double)c->by[stack[k].category];
        if (height < top) return stack[k].letter;
    }
    return ' ';
}

static void put_row(const column *columns, int64_t peak, int row, ds_buf *out) {
    double height = (row + 0.5) / ROWS * (double)peak;
    char text[COLUMNS + 1] = {0};
    for (int i = 0; i < COLUMNS; i++) text[i] = letter_at(&columns[i], height);
    for (size_t n = COLUMNS; n && text[n - 1] == ' ';) text[--n] = '\0';
    ds_buf_printf(out, "  %12s |%s\n", row == ROWS - 1 ? ds_report__bytes(peak).s : "", text);
}

void ds_report_memory_chart(const ds_result *r, ds_buf *out) {
    column columns[COLUMNS];
    bool seen[DS_MEM_CATEGORY_COUNT] = {0};
    int64_t peak = r->mem.classes[r->fullest].peak_bytes;
    fill_columns(r, columns);
    ds_buf_printf(out, "Memory of %s over the step", ds_report__device(r->plan, r->fullest));
    ds_report__alike(r->plan, r->fullest, out);
    ds_buf_putc(out, '\n');
    for (int row = ROWS - 1; row >= 0; row--) put_row(columns, peak, row, out);
    ds_buf_printf(out, "  %12s +", "0 B");
    for (int i = 0; i < COLUMNS; i++) ds_buf_putc(out, '-');
    ds_text end = ds_report__ps(r->run.step_ps);
    ds_buf_printf(out, "\n  %12s 0%*s\n  ", "", COLUMNS, end.s);
    for (int i = 0; i < COLUMNS; i++)
        for (int k = 0; k < DS_MEM_CATEGORY_COUNT; k++) seen[k] |= columns[i].by[k] > 0;
    for (int k = 0, n = 0; k < DS_MEM_CATEGORY_COUNT; k++)
        if (seen[stack[k].category])
            ds_buf_printf(out, "%s%c %s", n++ ? ", " : "", stack[k].letter,
                          ds_mem_category_name(stack[k].category));
    ds_buf_putc(out, '\n');
}
