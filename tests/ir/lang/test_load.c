/* Imports: where they are found, what is shared, what is refused. */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */
#include "ir/lang/library.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of its own, made the project root (.git) and the working folder. */
static char root[64];

static void enter(void) {
    snprintf(root, sizeof root, "/tmp/ds_load_XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    cr_assert_eq(chdir(root), 0);
    mkdir(".git", 0700);
    unsetenv("DISTSIM_PATH");
}

static void leave(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    cr_assert_eq(chdir("/"), 0);
    cr_assert_eq(system(command), 0);
}

TestSuite(load, .init = enter, .fini = leave);

static void put_file(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
}

static ds_unit *load(const char *path, const ds_load_options *options) {
    ds_unit *unit;
    ds_error err = {0};
    ds_status status = ds_load_file(path, options, &unit, &err);
    cr_assert_eq(status, DS_OK, "%s", err.message);
    return unit;
}

static void refuse(const char *path, ds_status expected, const char *message) {
    ds_unit *unit;
    ds_error err = {0};
    cr_assert_eq(ds_load_file(path, NULL, &unit, &err), expected, "%s", err.message);
    cr_assert(strstr(err.message, message), "%s", err.message);
    ds_unit_free(unit);
}

Test(load, own_folder_then_parents) {
    mkdir("a", 0700);
    mkdir("a/b", 0700);
    put_file("a/b/main.dir",
             "dir 1\nimport \"near.dir\"\nimport \"far.dir\"\nimport \"lib/x.dir\"\n");
    put_file("a/b/near.dir", "dir 1\n");
    put_file("near.dir", "dir 1\nwrong");
    put_file("far.dir", "dir 1\nparam far = 1\n");
    mkdir("a/lib", 0700);
    put_file("a/lib/x.dir", "dir 1\nimport \"y.dir\"\n");
    put_file("a/lib/y.dir", "dir 1\n");
    ds_unit *unit = load("a/b/main.dir", NULL);
    cr_assert_eq(unit->modules.n, 5);
    const ds_module *main = unit->modules.at[0];
    cr_assert_str_eq(main->imports.at[0].module->path, "a/b/near.dir");
    cr_assert_str_eq(main->imports.at[1].module->path, "far.dir");
    cr_assert_str_eq(main->imports.at[2].module->path, "a/lib/x.dir");
    ds_unit_free(unit);
}

Test(load, parents_of_the_working_folder) {
    mkdir("a", 0700);
    mkdir("a/b", 0700);
    put_file("up.dir", "dir 1\n");
    put_file("a/b/main.dir", "dir 1\nimport \"up.dir\"\n");
    cr_assert_eq(chdir("a/b"), 0);
    ds_unit *unit = load("main.dir", NULL);
    cr_assert_str_eq(unit->modules.at[1]->path, "../../up.dir");
    ds_unit_free(unit);
}

Test(load, the_project_is_the_limit) {
    mkdir("in", 0700);
    mkdir("in/.git", 0700);
    put_file("out.dir", "dir 1\n");
    put_file("in/main.dir", "dir 1\nimport \"out.dir\"\n");
    refuse("in/main.dir", DS_ERR_IO, "cannot find \"out.dir\"; looked in in");
}

Test(load, include_folders_then_the_environment) {
    mkdir("inc", 0700);
    mkdir("env", 0700);
    mkdir("project", 0700);
    mkdir("project/.git", 0700);
    put_file("project/main.dir", "dir 1\nimport \"a.dir\"\nimport \"b.dir\"\n");
    put_file("inc/a.dir", "dir 1\n");
    put_file("env/a.dir", "dir 1\n");
    put_file("env/b.dir", "dir 1\n");
    setenv("DISTSIM_PATH", "nowhere::env", 1);
    const char *folders[] = {"inc"};
    ds_unit *unit =
        load("project/main.dir", &(ds_load_options){.include_dirs = folders, .n_include_dirs = 1});
    cr_assert_str_eq(unit->modules.at[1]->path, "inc/a.dir");
    cr_assert_str_eq(unit->modules.at[2]->path, "env/b.dir");
    ds_unit_free(unit);
}

Test(load, the_library_last) {
    put_file("main.dir", "dir 1\nimport \"models/llama.dir\"\nimport \"models/mine.dir\"\n");
    mkdir("inc", 0700);
    mkdir("inc/models", 0700);
    put_file("inc/models/mine.dir", "dir 1\n");
    const char *folders[] = {"inc"};
    ds_load_options options = {.include_dirs = folders, .n_include_dirs = 1};
    ds_unit *unit = load("main.dir", &options);
    ds_unit_free(unit);
    char *model = ds_library_path("models/llama.dir", &options);
    cr_assert(strstr(model, "scenarios/models/llama.dir"), "%s", model);
    free(model);
    mkdir("models", 0700);
    put_file("models/llama.dir", "dir 1\n");
    put_file("inc/models/llama.dir", "dir 1\n");
    model = ds_library_path("models/llama.dir", &options);
    cr_assert_str_eq(model, "inc/models/llama.dir");
    free(model);
    unit = load("main.dir", &options);
    cr_assert_str_eq(unit->modules.at[1]->path, "models/llama.dir");
    ds_unit_free(unit);
    cr_assert_null(ds_library_path("models/none.dir", NULL));
}

Test(load, the_library_says_which_file_declares_a_name) {
    ds_library_items items;
    ds_library_scan(&items);
    const char *file = NULL;
    for (uint32_t i = 0; i < items.all.n; i++)
        if (strcmp(items.all.at[i].name, "dgx_a100") == 0) file = items.all.at[i].file;
    cr_assert_str_eq(file, "topologies/dgx-a100.dir");
    ds_library_items_deinit(&items);
}

Test(load, a_wrong_path_names_the_file_that_is_meant) {
    put_file("main.dir", "dir 1\nimport \"lama.dir\"\n");
    refuse("main.dir", DS_ERR_IO, "did you mean \"models/llama.dir\"?");
    put_file("main.dir", "dir 1\nimport \"dgx-a100\"\n");
    refuse("main.dir", DS_ERR_IO, "did you mean \"machines/dgx-a100.dir\"?");
}

Test(load, once_by_real_path_unless_it_is_an_instance) {
    put_file("m.dir", "dir 1\nparam layers = 1\n");
    cr_assert_eq(symlink("m.dir", "link.dir"), 0);
    put_file("main.dir", "dir 1\nimport \"m.dir\"\nimport \"./link.dir\"\nimport \"m.dir\" as g\n"
                         "import \"m.dir\" with layers = 2\n");
    ds_unit *unit = load("main.dir", NULL);
    const ds_import *imports = unit->modules.at[0]->imports.at;
    cr_assert_eq(unit->modules.n, 4);
    cr_assert_eq(imports[0].module, imports[1].module);
    cr_assert_neq(imports[0].module, imports[2].module);
    cr_assert_neq(imports[2].module, imports[3].module);
    ds_unit_free(unit);
}

Test(load, a_shared_import_of_two_files_is_one_module) {
    put_file("base.dir", "dir 1\n");
    put_file("x.dir", "dir 1\nimport \"base.dir\"\n");
    put_file("y.dir", "dir 1\nimport \"base.dir\"\n");
    put_file("main.dir", "dir 1\nimport \"x.dir\"\nimport \"y.dir\"\n");
    ds_unit *unit = load("main.dir", NULL);
    cr_assert_eq(unit->modules.n, 4);
    ds_unit_free(unit);
}

Test(load, circles_name_their_members) {
    put_file("a.dir", "dir 1\nimport \"b.dir\"\n");
    put_file("b.dir", "dir 1\nimport \"c.dir\" as c\n");
    put_file("c.dir", "dir 1\nimport \"a.dir\"\n");
    refuse("a.dir", DS_ERR_NAME, "imports go in a circle: a.dir <- c.dir <- b.dir <- a.dir");
    put_file("self.dir", "dir 1\nimport \"self.dir\" as s\n");
    refuse("self.dir", DS_ERR_NAME, "imports go in a circle: self.dir <- self.dir");
}

Test(load, doubling_instances_are_limited) {
    for (int k = 0; k < 20; k++) {
        char name[32], text[128];
        snprintf(name, sizeof name, "m%d.dir", k);
        snprintf(text, sizeof text, "dir 1\nimport \"m%d.dir\" as a\nimport \"m%d.dir\" as b\n",
                 k + 1, k + 1);
        put_file(name, text);
    }
    put_file("m20.dir", "dir 1\n");
    refuse("m0.dir", DS_ERR_LIMIT, "more than 1024 imported modules");
}

Test(load, errors_in_imports_point_there) {
    put_file("bad.dir", "dir 1\nparam = 2\n");
    put_file("main.dir", "dir 1\nimport \"bad.dir\"\n");
    ds_unit *unit;
    ds_error err = {0};
    ds_buf out = {0};
    cr_assert_eq(ds_load_file("main.dir", NULL, &unit, &err), DS_ERR_SYNTAX);
    ds_error_print(unit, &err, &out);
    cr_assert_str_eq(out.text, "bad.dir:2:7: error: expected a name for the param, found '='\n"
                               "   2 | param = 2\n     |       ^\n");
    ds_buf_deinit(&out);
    ds_unit_free(unit);
}

Test(load, missing_files) {
    refuse("none.dir", DS_ERR_IO, "cannot open none.dir: No such file or directory");
    mkdir("folder", 0700);
    put_file("main.dir", "dir 1\nimport \"folder\"\n");
    refuse("main.dir", DS_ERR_IO, "cannot find \"folder\"; looked in .");
    put_file("abs.dir", "dir 1\nimport \"/nonexistent/x.dir\"\n");
    refuse("abs.dir", DS_ERR_IO, "cannot find \"/nonexistent/x.dir\"");
}

Test(load, text_in_memory) {
    put_file("m.dir", "dir 1\n");
    static const char text[] = "dir 1\nimport \"m.dir\"\n";
    ds_unit *unit;
    cr_assert_eq(ds_load_text("<stdin>", text, strlen(text), NULL, &unit, NULL), DS_OK);
    cr_assert_eq(unit->modules.n, 2);
    ds_unit_free(unit);
}
