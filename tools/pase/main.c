/* pase-tables search            25 searches: least costs and seconds beside PaSE's own program
 * pase-tables figure6 [GBIT]    figure 6 of PaSE: measured and simulated, with InfiniBand of GBIT
 *                               Gb/s a box (56)
 * pase-tables models DEVICES    the models of scenarios/models: found strategies and others,
 *                               simulated
 *
 * From the repository's root; Markdown. Profiles are those of the build, or of $DISTSIM_PROFILES.
 */
#include "tools/pase/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void) {
    fprintf(stderr, "usage: pase-tables search | figure6 [GBIT] | models DEVICES\n");
    return 2;
}

int main(int argc, char **argv) {
    tables_options options = {.root = ".", .infiniband_gbit = 56, .devices = 8};
    const char *path = getenv("DISTSIM_PROFILES");
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    int64_t number = argc > 2 ? strtoll(argv[2], NULL, 10) : 0;
    if (argc < 2 || argc > 3 || (argc == 3 && number < 1)) return usage();
    if (number) options.infiniband_gbit = options.devices = number;
    if (ds_profiles_load(path ? path : DS_BUILD_PROFILES, &profiles, &err) != DS_OK) {
        fprintf(stderr, "pase-tables: %s\n", err.message);
        return 3;
    }
    options.profiles = profiles;
    int failures = 0;
    if (strcmp(argv[1], "figure6") == 0)
        failures = tables_figure6(&options);
    else if (strcmp(argv[1], "search") == 0)
        failures = tables_search(&options);
    else if (strcmp(argv[1], "models") == 0)
        failures = tables_models(&options);
    else
        failures = -1;
    ds_profiles_free(profiles);
    return failures < 0 ? usage() : failures > 0;
}
