/* The testbed of a row that nobody calibrated: the generic profile of its GPU, the documented
 * defaults of its framework, and the machine that the row states, else a usual machine of that GPU.
 *
 * The framework follows from source_id and source_ref, else from the schedule and the ZeRO stage.
 * Links are read from intra_link and inter_link ("25 GB/s a GPU (assumed)"). Notes say what no
 * column does: torch.compile or eager, asynchronous tensor parallelism, another memory or power
 * limit of the card. No constant here was chosen by a measured step. */
#ifndef DS_VALIDATE_STACK_H
#define DS_VALIDATE_STACK_H

#include "tools/validate/testbed.h"

/* DS_ERR_UNSUPPORTED, with the cell: a GPU, a link or a stack that no table here has. */
ds_status val_stack_testbed(const val_row *row, val_testbed *out, ds_error *err);

/* The testbed of a row: the calibrated one where its source has one, else that of the stack. With
 * `zero_shot` a calibrated testbed keeps the facts of its machine and framework, and loses its
 * profile to the generic one. */
ds_status val_testbed_for(const val_row *row, bool zero_shot, val_testbed *out, ds_error *err);

#endif
