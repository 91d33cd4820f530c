/* `lines` and `classes` of a framework's table. The file that includes this header defines
 * TABLE_LINES before, the name of the .def file. */
#ifndef DS_LAUNCH_TABLE_INTERNAL_H
#define DS_LAUNCH_TABLE_INTERNAL_H

#include "ir/launch/internal.h"

#define NONE       DS_NO_FIELD
#define AT(member) offsetof(ds_launch, member)
#define SIZE(name) offsetof(ds_launch, model.size[DS_MODEL_##name])

#define ARG(id, kind, name, ...) ARG_LINE(kind, name, __VA_ARGS__, 0, NULL, 0)
#define ARG_LINE(kind, name, initial, field, feature, key, ...)                                    \
    {name, DS_ARG_##kind, initial, field, feature, key},
static const ds_arg lines[] = {
#include TABLE_LINES
};

#define CLASS(pattern, fine, why) {pattern, fine, why},
static const ds_arg_class classes[] = {
#include TABLE_LINES
};

#define TABLE(title, is_config)                                                                    \
    {                                                                                              \
        title, lines, sizeof lines / sizeof *lines, classes, sizeof classes / sizeof *classes,     \
            is_config                                                                              \
    }

#endif
