/* Runs a fuzz target over files and folders of files: the corpus as a regression test, with any
 * compiler and any sanitizer. */
#include "ir/base/arena.h"
#include "ir/base/str.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return false;
    }
    ds_buf text = {0};
    char chunk[4096];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0) ds_buf_put_n(&text, chunk, n);
    fclose(file);
    /* An exact-size heap copy, so that a read past the end is seen. */
    uint8_t *data = ds_xmalloc(text.n);
    if (text.n) memcpy(data, text.text, text.n);
    LLVMFuzzerTestOneInput(data, text.n);
    free(data);
    ds_buf_deinit(&text);
    return true;
}

static bool replay(const char *path, uint32_t *count) {
    DIR *dir = opendir(path);
    if (!dir) {
        ++*count;
        return replay_file(path);
    }
    bool ok = true;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        ds_buf child = {0};
        ds_buf_printf(&child, "%s/%s", path, entry->d_name);
        ok = replay(child.text, count) && ok;
        ds_buf_deinit(&child);
    }
    closedir(dir);
    return ok;
}

int main(int argc, char **argv) {
    uint32_t count = 0;
    bool ok = true;
    for (int i = 1; i < argc; i++) ok = replay(argv[i], &count) && ok;
    printf("%u inputs replayed\n", count);
    return ok && count > 0 ? 0 : 1;
}
