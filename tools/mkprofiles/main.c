/* mkprofiles COST_PROFILES_DIR PROFILES_DB: the build step that makes the cost database. */
#include "sim/cost/build.h"

#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: mkprofiles COST_PROFILES_DIR PROFILES_DB\n");
        return 2;
    }
    ds_error err = {0};
    ds_status status = ds_profiles_build(argv[1], argv[2], &err);
    if (status != DS_OK) fprintf(stderr, "mkprofiles: error: %s\n", err.message);
    return ds_status_exit_code(status);
}
