/* distsim search FILE --method tag. */
#ifndef DS_CLI_SEARCH_TAG_H
#define DS_CLI_SEARCH_TAG_H

#include "tools/cli/cli.h"

typedef struct cli_search_tag {
    const char *semantics; /* distsim, tag */
    uint64_t n_playouts, seed;
    uint32_t n_groups, n_workers, n_whole;
    bool json;
    const char *output, *html; /* NULL: none */
    const char *prior;         /* weights of a network; NULL: uniform priors */
    cli_options *common;
} cli_search_tag;

/* Searches, writes `output`, appends the report. */
ds_status cli_search_tag_run(const cli_search_tag *options, const char *file, ds_buf *out,
                             ds_error *err);

#endif
