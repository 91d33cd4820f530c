/* mkmanual ops|knobs PROSE…: prints a page of the manual, made of the tables of the product and of
 * the files PROSE, one after the other. Of the second file on the text before the first chapter
 * ("## …") is left out: the file's own introduction. */
#include "tools/mkmanual/mkmanual.h"

#include "ir/base/file.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    bool ops = argc > 2 && strcmp(argv[1], "ops") == 0;
    if (!ops && (argc < 3 || strcmp(argv[1], "knobs") != 0)) {
        fprintf(stderr, "usage: mkmanual ops|knobs PROSE...\n");
        return 2;
    }
    ds_buf prose = {0};
    ds_error err = {0};
    ds_status status = DS_OK;
    for (int i = 2; i < argc && status == DS_OK; i++) {
        ds_buf file = {0};
        status = ds_file_read(argv[i], DS_NOWHERE, 1 << 22, &file, &err);
        const char *chapter = file.text && i > 2 ? strstr(file.text, "\n## ") : file.text;
        if (status == DS_OK && chapter) ds_buf_put(&prose, chapter);
        ds_buf_deinit(&file);
    }
    if (status != DS_OK)
        fprintf(stderr, "mkmanual: error: %s\n", err.message);
    else if (!ops)
        mkmanual_knobs(prose.text);
    else if (!mkmanual_ops(prose.text))
        status = DS_ERR_NAME;
    ds_buf_deinit(&prose);
    return ds_status_exit_code(status);
}
