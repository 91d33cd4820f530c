/* distsim plan --cluster A100:4x8,V100:12x8: machines of several kinds as one topology. */
#include "tools/cli/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const cli_plan *plan, const char *reason, const char *part) {
    fprintf(stderr,
            "distsim: error: --cluster %s: %s '%s'; write NAME:MACHINESxGPUS, as in "
            "A100:4x8,V100:12x8\n",
            plan->cluster, reason, part);
    return 2;
}

enum { MOST_MACHINES = 4096 };

/* "4x8" or "4": machines, and GPUs of each. */
static bool read_sizes(const char *text, cli_part *part) {
    char *end;
    if (*text < '1' || *text > '9') return false;
    part->machines = strtoll(text, &end, 10);
    part->gpus = part->machine->gpus;
    if (*end == 'x' && end[1] >= '1' && end[1] <= '9') part->gpus = strtoll(end + 1, &end, 10);
    return !*end;
}

static int read_part(cli_plan *plan, char *text, const ds_profiles *profiles) {
    char *colon = strchr(text, ':');
    ds_error err;
    if (plan->n_parts == CLI_PARTS)
        return refuse(plan, "more than four kinds, beginning with", text);
    if (!*text || text == colon) return refuse(plan, "an entry names no GPU:", text);
    cli_part *part = &plan->parts[plan->n_parts++];
    if (colon) *colon = '\0';
    if (cli_library_find_machine(text, profiles, &part->machine, &err) != DS_OK)
        return cli_fail(NULL, &err);
    part->machines = 1;
    part->gpus = part->machine->gpus;
    if (colon && !read_sizes(colon + 1, part))
        return refuse(plan, "the machines and their GPUs are no numbers from 1:", colon + 1);
    if (part->machines > MOST_MACHINES)
        return refuse(plan, ds_arena_printf(plan->arena, "more than %d machines in", MOST_MACHINES),
                      colon + 1);
    if (part->gpus > part->machine->gpus)
        return refuse(plan,
                      ds_arena_printf(plan->arena, "%s has %" PRId64 " GPUs, fewer than in",
                                      part->machine->name, part->machine->gpus),
                      colon + 1);
    for (uint32_t i = 0; i + 1 < plan->n_parts; i++)
        if (strcmp(plan->parts[i].machine->gpu, part->machine->gpu) == 0)
            return refuse(plan, "two parts have the same GPU; the second is", text);
    return 0;
}

int cli_plan_find_cluster(cli_plan *plan, const ds_profiles *profiles) {
    char *text = ds_arena_strdup(plan->arena, plan->cluster);
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next) *next++ = '\0';
        int exit_code = read_part(plan, text, profiles);
        if (exit_code) return exit_code;
    }
    plan->on_name = "cluster";
    return 0;
}

/* Each kind's own network meets the others' at one switch. Without --between the switch is no limit:
 * 1,000 GB/s a kind. */
void cli_plan_put_cluster(const cli_plan *plan, ds_buf *out) {
    if (plan->cluster_text) ds_buf_put(out, plan->cluster_text);
    if (plan->cluster_text) return;
    for (uint32_t i = 0; i < plan->n_parts; i++)
        ds_buf_printf(out, "import \"machines/%s.dir\" as m%" PRIu32 " with nodes = %" PRId64 "\n",
                      plan->parts[i].machine->name, i, plan->parts[i].machines);
    ds_buf_put(out, "topology @cluster {\n");
    for (uint32_t i = 0; i < plan->n_parts; i++)
        ds_buf_printf(out, "  node m%" PRIu32 " : @m%" PRIu32 ".cluster\n", i, i);
    if (plan->n_parts > 1) ds_buf_put(out, "  switch between\n");
    for (uint32_t i = 0; i < plan->n_parts && plan->n_parts > 1; i++)
        ds_buf_printf(out, "  link m%" PRIu32 ".network -- between : %.17g GB/s, 0 ns\n", i,
                      plan->between_gb_per_s > 0 ? plan->between_gb_per_s : 1000.0);
    ds_buf_put(out, "}\n");
}
