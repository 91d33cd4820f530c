#include "tests/support/generate/cost_tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const files[] = {"schema.sql",
                                    "catalogue/sources.csv",
                                    "catalogue/memory.csv",
                                    "catalogue/clocks.csv",
                                    "catalogue/relatives.csv",
                                    "catalogue/intervals.csv",
                                    "catalogue/devices.csv",
                                    "catalogue/links.csv",
                                    "p/profile.csv",
                                    "p/sources.csv",
                                    "p/ops.csv",
                                    "p/efficiency.csv",
                                    "p/gemm_fits.csv",
                                    "p/attention_fits.csv",
                                    "p/collectives.csv",
                                    "p/collective_fits.csv",
                                    "p/collective_protocols.csv",
                                    "q/profile.csv",
                                    "q/gemm_fits.csv",
                                    "q/efficiency.csv"};

static void path_of(const cost_tree *tree, const char *file, char *path, size_t n) {
    snprintf(path, n, "%s/%s", tree->dir, file);
}

void cost_tree_put(const cost_tree *tree, const char *file, const char *text) {
    char path[160];
    path_of(tree, file, path, sizeof path);
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
}

static void copy_schema(const cost_tree *tree) {
    char text[1 << 15];
    FILE *f = fopen(DS_SOURCE_DIR "/cost_profiles/schema.sql", "rb");
    cr_assert_not_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    cr_assert_lt(n, sizeof text - 1);
    text[n] = '\0';
    cost_tree_put(tree, "schema.sql", text);
}

void cost_tree_init(cost_tree *tree) {
    char path[160];
    strcpy(tree->dir, "/tmp/distsim-cost-XXXXXX");
    cr_assert_not_null(mkdtemp(tree->dir));
    snprintf(tree->db, sizeof tree->db, "%s/t.db", tree->dir);
    path_of(tree, "catalogue", path, sizeof path);
    mkdir(path, 0700);
    path_of(tree, "p", path, sizeof path);
    mkdir(path, 0700);
    path_of(tree, "q", path, sizeof path);
    mkdir(path, 0700);
    copy_schema(tree);
    cost_tree_put(tree, "catalogue/sources.csv",
                  "key,title,place,revision,licence\ns,A source,somewhere,r1,MIT\n");
    cost_tree_put(
        tree, "catalogue/devices.csv",
        "name,aliases,memory_gib,memory_gb_per_s,f32_tflops,f16_tflops,bf16_tflops,source\n"
        "Box-1,b1 box-one,1.5,100,10,20,20,s\n"
        "Bare,,0,0,,,,s\n");
    cost_tree_put(tree, "catalogue/links.csv",
                  "name,gb_per_s,latency_us,source\nwire,12.5,0.5,s\n");
    cost_tree_put(tree, "p/profile.csv",
                  "name,device,issue_us,software,source\nP,Box-1,2.5,by hand,s\n");
}

void cost_tree_deinit(cost_tree *tree) {
    char path[160];
    unlink(tree->db);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        path_of(tree, files[i], path, sizeof path);
        unlink(path);
    }
    path_of(tree, "catalogue", path, sizeof path);
    rmdir(path);
    path_of(tree, "p", path, sizeof path);
    rmdir(path);
    path_of(tree, "q", path, sizeof path);
    rmdir(path);
    cr_assert_eq(rmdir(tree->dir), 0, "%s is not empty", tree->dir);
}

ds_profiles *cost_tree_load(const cost_tree *tree) {
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_build(tree->dir, tree->db, &err), DS_OK, "%s", err.message);
    cr_assert_eq(ds_profiles_load(tree->db, &profiles, &err), DS_OK, "%s", err.message);
    return profiles;
}

void cost_tree_refused(const cost_tree *tree, const char *message) {
    ds_error err = {0};
    cr_assert_eq(ds_profiles_build(tree->dir, tree->db, &err), DS_ERR_DATA, "built: %s", message);
    cr_assert_neq(access(tree->db, F_OK), 0, "a failed build left a database");
    char expected[DS_ERROR_MESSAGE_MAX];
    const char *dir = strstr(message, "DIR");
    if (dir)
        snprintf(expected, sizeof expected, "%.*s%s%s", (int)(dir - message), message, tree->dir,
                 dir + 3);
    else
        snprintf(expected, sizeof expected, "%s", message);
    cr_assert_str_eq(err.message, expected);
}

ds_profiles *cost_tree_load_committed(void) {
    char db[] = "/tmp/distsim-cost-XXXXXX";
    int fd = mkstemp(db);
    cr_assert_geq(fd, 0);
    close(fd);
    ds_profiles *profiles = NULL;
    ds_error err = {0};
    cr_assert_eq(ds_profiles_build(DS_SOURCE_DIR "/cost_profiles", db, &err), DS_OK, "%s",
                 err.message);
    cr_assert_eq(ds_profiles_load(db, &profiles, &err), DS_OK, "%s", err.message);
    unlink(db);
    return profiles;
}
