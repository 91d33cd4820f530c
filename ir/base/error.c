#include "ir/base/error.h"

#include "ir/base/arena.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void ds_error_move(ds_error *err, ds_loc loc) {
    if (!err) return;
    err->loc.line = loc.line;
    err->loc.col = loc.col;
    err->loc.len = loc.len;
    size_t n = loc.file ? strlen(loc.file) : 0, room = sizeof err->loc.file - 1;
    bool cut = n > room;
    if (n) memmove(err->loc.file, loc.file + (cut ? n - room : 0), cut ? room : n);
    err->loc.file[cut ? room : n] = '\0';
    if (cut) memcpy(err->loc.file, "...", 3);
}

ds_loc ds_error_loc(const ds_error *err) {
    return (ds_loc){*err->loc.file ? err->loc.file : NULL, err->loc.line, err->loc.col,
                    err->loc.len};
}

ds_status ds_error_vset(ds_error *err, ds_status code, ds_loc loc, const char *format, va_list ap) {
    if (code == DS_ERR_IO && errno == ENOMEM) ds_out_of_memory(0);
    if (err) {
        err->code = code;
        ds_error_move(err, loc);
        vsnprintf(err->message, sizeof err->message, format, ap);
    }
    return code;
}

ds_status ds_error_set(ds_error *err, ds_status code, ds_loc loc, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    ds_error_vset(err, code, loc, format, ap);
    va_end(ap);
    return code;
}

const char *ds_status_name(ds_status code) {
    switch (code) {
    case DS_OK:
        return "OK";
#define DS_X(name, exit_code, text)                                                                \
    case DS_ERR_##name:                                                                            \
        return #name;
        DS_ERROR_MAP(DS_X)
#undef DS_X
    }
    return "?";
}

const char *ds_status_text(ds_status code) {
    switch (code) {
    case DS_OK:
        return "ok";
#define DS_X(name, exit_code, text)                                                                \
    case DS_ERR_##name:                                                                            \
        return text;
        DS_ERROR_MAP(DS_X)
#undef DS_X
    }
    return "?";
}

int ds_status_exit_code(ds_status code) {
    switch (code) {
    case DS_OK:
        return 0;
#define DS_X(name, exit_code, text)                                                                \
    case DS_ERR_##name:                                                                            \
        return exit_code;
        DS_ERROR_MAP(DS_X)
#undef DS_X
    }
    return 3;
}
