/* distsim search FILE --method tag. */
#ifndef DS_CLI_SEARCH_TAG_H
#define DS_CLI_SEARCH_TAG_H

#include "search/tag/branch.h"
#include "tools/cli/cli.h"

#define CLI_TAG_MOST_GROUPS 1000
/* The certificate's line `objective`, and the first line after the line `groups`. */
#define CLI_TAG_OBJECTIVE  "tag_makespan"
#define CLI_TAG_FIRST_LINE 6

typedef struct cli_search_tag {
    const char *semantics; /* distsim, tag */
    uint64_t n_playouts, seed;
    uint32_t n_groups, n_workers, n_whole;
    bool json;
    const char *output, *html; /* NULL: none */
    const char *certificate;   /* of the lower bound, by TAG's semantics; NULL: none */
    const char *prior;         /* weights of a network; NULL: uniform priors */
    cli_options *common;
} cli_search_tag;

/* Searches, writes `output`, appends the report. *fits: a deployment that fits was found. */
ds_status cli_search_tag_run(const cli_search_tag *options, const char *file, ds_buf *out,
                             bool *fits, ds_error *err);

/* Checks a certificate of `certificate` against FILE. Errors: DATA with the line; those of
 * ds_tag_model_read. */
ds_status cli_search_tag_certify(cli_options *common, const char *file, const char *certificate,
                                 ds_tag_branched *out, ds_error *err);

#endif
