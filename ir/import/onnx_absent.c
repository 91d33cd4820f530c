/* The importer of ONNX in a build without ONNX (-DDS_ONNX=OFF). */
#include "ir/import/import.h"

ds_status ds_import_onnx(const char *bytes, size_t n, const ds_import_options *options, ds_buf *out,
                         ds_error *err) {
    (void)bytes, (void)n, (void)options, (void)out;
    return ds_error_set(err, DS_ERR_UNSUPPORTED, DS_NOWHERE,
                        "this build of distsim has no ONNX; the package distsim-full has, and so "
                        "has a build with -DDS_ONNX=ON");
}
