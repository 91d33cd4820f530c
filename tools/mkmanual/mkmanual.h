/* The two pages that are made of tables and prose. Each function prints its page. */
#ifndef DS_MKMANUAL_H
#define DS_MKMANUAL_H

#include <stdbool.h>

/* ir/ops/OPS.generated.md. False, with a line on stderr for each, if entries are of no op. */
bool mkmanual_ops(const char *prose);
/* ir/strategy/KNOBS.generated.md. */
void mkmanual_knobs(const char *prose);

#endif
