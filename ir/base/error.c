#include "ir/base/error.h"

#include <stdio.h>

ds_status ds_error_vset(ds_error *err, ds_status code, ds_loc loc, const char *format, va_list ap) {
    if (err) {
        err->code = code;
        err->loc = loc;
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
