/* Private to ir/core: what a module sees through its imports. */
#ifndef DS_CORE_IMPORTS_H
#define DS_CORE_IMPORTS_H

#include "ir/core/ir.h"

/* The module itself and all that it reaches through imports without an alias, which bring their
 * names along; breadth first, each once. A heap array of *n; free it. O(modules + imports). */
ds_module **ds_ir__open_modules(const ds_module *module, uint32_t *n);
/* The module bound by `import … as alias`, for an alias of n bytes, or NULL. */
ds_module *ds_ir__find_alias(const ds_module *module, const char *alias, size_t n);

#endif
