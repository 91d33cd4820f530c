/* Five times a second, once the sweep has run for half a second. */
#include "tools/cli/progress.h"

#include "ir/base/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 20 };

static void show_progress(void *context, const ds_sweep_progress *p) {
    cli_progress *state = context;
    if (p->seconds < 0.5 || p->seconds < state->shown_s + 0.2) return;
    state->shown_s = p->seconds;
    double rate = (double)p->here / p->seconds;
    char bar[BAR_WIDTH + 1];
    int full = (int)(BAR_WIDTH * (p->share > 1 ? 1 : p->share));
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(BAR_WIDTH - full));
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %.1f %%, %" PRIu64 " rows, %.*f/s", bar, 100 * p->share, p->rows,
            rate < 10 ? 2 : 0, rate);
    if (p->share > 0.001 && p->share < 1) {
        long left = (long)(p->seconds * (1 - p->share) / p->share);
        if (left >= 3600)
            fprintf(stderr, ", %ld:%02ld h left", left / 3600, left / 60 % 60);
        else
            fprintf(stderr, ", %ld:%02ld left", left / 60, left % 60);
    }
    ds_buf best = {0};
    if (p->best_ps) {
        ds_print_ps(p->best_ps, &best);
        fprintf(stderr, ", best %s", best.text);
    }
    ds_buf_deinit(&best);
    fputs("\033[K", stderr); /* ECMA-48: erase to the end of the line */
}

void cli_progress_begin(cli_progress *progress, ds_sweep_options *sweep) {
    if (!isatty(STDERR_FILENO)) return;
    sweep->progress = show_progress;
    sweep->progress_context = progress;
}

void cli_progress_end(const cli_progress *progress) {
    if (progress->shown_s > 0) fputs("\r\033[K", stderr);
}
