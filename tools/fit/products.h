/* Published products (tests/data/ops: gemm.csv, deepbench.csv) as fits of generic profiles. */
#ifndef DS_TOOLS_FIT_PRODUCTS_H
#define DS_TOOLS_FIT_PRODUCTS_H

#include "ir/core/ir.h"
#include "sim/cost/cost.h"
#include "tools/fit/fit.h"

/* What a dtype of the tables is. */
typedef struct fit_product_format {
    const char *name; /* in the tables */
    ds_dtype dtype;
    const char *format;     /* in gemm_fits.csv */
    double element_bytes;   /* with the scales */
    double converted_bytes; /* moved by the conversion of an element of the activation */
} fit_product_format;

#define FIT_N_PRODUCT_FORMATS 7
extern const fit_product_format fit_product_formats[FIT_N_PRODUCT_FORMATS];

/* Multiprocessors or compute units of a kind; 0: not known here. */
int64_t fit_processors_of(const ds_device_kind *kind);

/* Was the kernel timed with operands converted before? Else the time holds the activation's. */
bool fit_is_converted_before(const char *kernel);

/* Fits FOLDER/gemm_fits.csv of a generic profile to the rows of its device in TABLES/gemm.csv and
 * TABLES/deepbench.csv, marked calib. FIT_CHECK fits nothing: DS_ERR_DATA if the errors of the
 * constants in the file are others than the file says. */
ds_status fit_products(const char *tables, const char *folder, fit_mode mode, ds_error *err);

#endif
