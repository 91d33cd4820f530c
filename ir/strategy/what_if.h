/* Other machines: `what_if = ["compute * 1.5", "link nic * 2"]`.
 *
 * A statement is a resource, `*` and a number: how many times as much of the resource there is. The
 * resources of DS_RESOURCE_MAP are everybody's; `link A * F` is the bandwidth of all links with an end
 * at a node that its topology calls A, `link A--B * F` of links between nodes of these two names,
 * `link * F` of all. Statements about one resource multiply. What no rate makes shorter stays: the
 * time of a launch, a stated cost, latency under more bandwidth. */
#ifndef DS_STRATEGY_WHAT_IF_H
#define DS_STRATEGY_WHAT_IF_H

#include "ir/core/ir.h"

#define DS_RESOURCE_MAP(X)                                                                         \
    X(COMPUTE, "compute", "rates of arithmetic")                                                   \
    X(MEMORY, "memory", "bandwidths of the devices' memory")                                       \
    X(HOST, "host", "kernels that a host issues a second")                                         \
    X(LATENCY, "latency", "latencies of links, launches and steps of collectives")
typedef enum ds_resource {
#define DS_X(id, name, doc) DS_RESOURCE_##id,
    DS_RESOURCE_MAP(DS_X)
#undef DS_X
        DS_N_RESOURCES
} ds_resource;
/* "compute". */
const char *ds_resource_name(ds_resource resource);

/* How many times as much, in 10^-9; from a millionth to a million times. */
#define DS_WHAT_IF_WHOLE INT64_C(1000000000)
#define DS_WHAT_IF_LINKS 16

typedef struct ds_link_what_if {
    const char *text;  /* the statement */
    char a[64], b[64]; /* names of nodes; "": any */
    int64_t ppb;
} ds_link_what_if;

typedef struct ds_what_if {
    int64_t ppb[DS_N_RESOURCES];
    ds_link_what_if links[DS_WHAT_IF_LINKS];
    uint32_t n_links;
} ds_what_if;

/* What the scenario's `what_if` says; all 1 without the key. Texts live as long as the unit.
 * DS_ERR_VALUE for a statement that cannot be read, a number out of range, too many of links. */
ds_status ds_what_if_read(const ds_binding *binding, ds_what_if *out, ds_error *err);
/* Does the statement speak of links between nodes of these names? */
bool ds_what_if_means(const ds_link_what_if *link, const char *from, const char *to);
/* Is every rate of devices, hosts and latencies as it is? */
bool ds_what_if_is_plain(const ds_what_if *what_if);
/* amount · ppb / 10^9 and amount · 10^9 / ppb, to the nearest, at most 2^62; times 1 is amount. */
int64_t ds_what_if_times(int64_t amount, int64_t ppb);
int64_t ds_what_if_over(int64_t amount, int64_t ppb);

#endif
