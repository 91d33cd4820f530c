/* What published recipes recompute, where a table of measurements does not repeat it: for the fit
 * into memory, and for the time with a generic profile. */
#ifndef DS_VALIDATE_RECIPE_H
#define DS_VALIDATE_RECIPE_H

#include "tools/validate/row.h"

/* The modules that the recipe of the row's model, GPU and precision recomputes, as the items of a
 * list of `recompute`; NULL: none. */
const char *val_recipe_modules(const val_row *row);

/* The share of layers whose activations the recipe keeps at hosts (cpu_offloading_num_layers). */
double val_recipe_offloaded(const val_row *row);

/* Does the recipe put tokens' exchange with experts under another microbatch's compute? */
bool val_recipe_overlaps(const val_row *row);

/* Does the recipe send tokens by DeepEP (moe_flex_dispatcher_backend, moe_enable_deepep)? */
bool val_recipe_has_deepep(const val_row *row);

#endif
