/* Device graphs: devices, switches, NICs, hosts and directed links, and the routes between devices.
 *
 * A topology stays a tree of templates: a template is built once, an instance is a (template,
 * path). Routing: least total latency, then fewest links; all remaining equal
 * paths share the bytes equally. A route with a link that `degrade` makes slower gives way to the
 * best route without such links, if 25 MB take less time there. Devices never forward traffic unless declared { forward = true }.
 */
#ifndef DS_TOPO_TOPO_H
#define DS_TOPO_TOPO_H

#include "ir/base/json.h"
#include "ir/base/str.h"
#include "ir/core/ir.h"

typedef struct ds_topo ds_topo;

/* Evaluates and checks a topology (counts, indices, link ends, recursion, units) and builds it.
 * Errors: with the place in the source. O(vertices + links). */
ds_status ds_topo_build(const ds_binding *binding, const ds_topology *topology, ds_topo **out,
                        ds_error *err);
void ds_topo_free(ds_topo *topo);

const char *ds_topo_name(const ds_topo *topo);

/* Devices are numbered in order of declaration, nested instances depth first. */
uint32_t ds_topo_n_devices(const ds_topo *topo);
/* "n[3].gpu[2]"; lives as long as the topo. */
const char *ds_topo_device_path(const ds_topo *topo, uint32_t device);
/* The hardware catalogue's name as written after ':'. */
const char *ds_topo_device_type(const ds_topo *topo, uint32_t device);
/* `sustained_clock`: the part of its boost clock that the device keeps under load, in 10^-9; whole
 * unless said. */
#define DS_TOPO_WHOLE INT64_C(1000000000)
int64_t ds_topo_device_clock(const ds_topo *topo, uint32_t device);
/* `power_cap`: the device's power limit, in mW; 0 unless said. */
int64_t ds_topo_device_power_mw(const ds_topo *topo, uint32_t device);
/* Have all devices one clock and one power cap? O(devices). */
bool ds_topo_one_clock(const ds_topo *topo);
/* A line for each part that devices keep, under `title`, and the member "sustained_clock" of an
 * object: the devices' parts, by type; nothing where all are whole. */
void ds_topo_list_clocks(const ds_topo *topo, const char *title, ds_buf *out);
void ds_topo_put_clocks(const ds_topo *topo, ds_json *json);
/* The device at a written path like gpu[0] or n[i].gpu[j] (a path to an instance with exactly one
 * device is that device). DS_ERR_NAME with a suggestion. */
ds_status ds_topo_find_device(const ds_topo *topo, const ds_env *env, const ds_step *steps,
                              uint32_t n_steps, ds_loc loc, uint32_t *device, ds_error *err);
/* Any vertex by printed path "n[3].nic[1]", for the command line. UINT32_MAX if absent. */
uint32_t ds_topo_find_vertex(const ds_topo *topo, const char *path);

/* host[d], for every device d: the vertex of the host that is nearest to it by latency, of equals
 * the first declared; UINT32_MAX: none can be reached. O(links + devices · links up to the host).
 */
void ds_topo_nearest_hosts(const ds_topo *topo, uint32_t *host);
uint32_t ds_topo_device_vertex(const ds_topo *topo, uint32_t device);
/* The device at a vertex that is one. O(log devices). */
uint32_t ds_topo_device_at(const ds_topo *topo, uint32_t vertex);

/* Devices of one island have fast links between them, as those of one node have; between islands
 * there are NICs or slow links (island.c). Equal numbers: one island. The first call costs
 * O(vertices + links) and, like a route's, is not thread-safe for one topo. */
uint32_t ds_topo_island(ds_topo *topo, uint32_t device);
/* Do fast links lead from the device to others without a switch between? As above. */
bool ds_topo_has_peer_links(ds_topo *topo, uint32_t device);
/* The switches with {reduce = true}, ascending; and is a vertex one of them? As above. */
const uint32_t *ds_topo_reducing_switches(ds_topo *topo, uint32_t *n);
bool ds_topo_reduces(const ds_topo *topo, uint32_t vertex);

uint32_t ds_topo_n_vertices(const ds_topo *topo);
ds_node_kind ds_topo_vertex_kind(const ds_topo *topo, uint32_t vertex);
const char *ds_topo_vertex_path(const ds_topo *topo, uint32_t vertex);

/* A directed link. `--` makes two of them. */
typedef struct ds_topo_link {
    uint32_t from, to;   /* vertices */
    int64_t bytes_per_s; /* what transfers get: the written bandwidth times `efficiency` */
    int64_t latency_ps;
    int64_t cap_bytes_per_s; /* highest bandwidth of a single message; 0: no cap */
    /* Before `what_if` and `degrade`; bytes_per_s is 0 on a link that is missing then: no route takes
     * it. */
    int64_t whole_bytes_per_s;
    int64_t known_bytes_per_s; /* without the scenario's `what_if`; 0: the rate, nothing is said */
} ds_topo_link;

/* Equal for graphs that are equal: vertices with their kinds and flags, links with their figures,
 * types of devices; not names. O(vertices + links) when first asked. */
uint64_t ds_topo_hash(ds_topo *topo);

uint32_t ds_topo_n_links(const ds_topo *topo);
const ds_topo_link *ds_topo_link_at(const ds_topo *topo, uint32_t link);

/* Room for a number a link, for one user at a time: NULL while it is taken. The numbers are those
 * that the last user left, or 0. Like routes not thread-safe for one topo. */
uint32_t *ds_topo_take_numbers(ds_topo *topo);
void ds_topo_give_numbers(ds_topo *topo);

/* What `degrade` says of devices and links, in 10^-9 (DS_DEGRADE_WHOLE of ir/verify/degrade.h). */
typedef struct ds_topo_degraded {
    bool is_link;
    uint32_t i;                         /* device or link */
    int64_t compute_ppb, memory_ppb;    /* of a device: what is left; else 10^9 */
    int64_t bandwidth_ppb, latency_ppb; /* of a link: what is left, how many times; else 10^9 */
} ds_topo_degraded;
/* Devices, then links, ascending; *n is 0 where nothing is degraded. */
const ds_topo_degraded *ds_topo_degraded_all(const ds_topo *topo, uint32_t *n);
/* What is left of a device's compute and memory bandwidth; 10^9 each if nothing is said. O(1). */
void ds_topo_device_shares(const ds_topo *topo, uint32_t device, int64_t *compute_ppb,
                           int64_t *memory_ppb);
/* "gpu[3] compute 0.8, memory 0.9", "gpu[0] -> sw missing". */
void ds_topo_print_degraded(const ds_topo *topo, const ds_topo_degraded *d, ds_buf *out);
/* A line each under `title`, of many the first few; nothing where there are none. */
void ds_topo_list_degraded(const ds_topo *topo, const char *title, ds_buf *out);
/* All of them as the member "degraded" of an object; nothing where there are none. */
void ds_topo_put_degraded(const ds_topo *topo, ds_json *json);

/* Appends the classes of links, "gpu--nvswitch,nic--leaf": by the names of the nodes at their ends, as
 * a scenario's `what_if` calls them (ir/strategy/what_if.h). */
void ds_topo_link_names(const ds_topo *topo, ds_buf *out);

/* Is the next link this one's reverse, as the two halves of a `--` are? They are shown as one line.
 */
bool ds_topo_is_duplex(const ds_topo *topo, uint32_t link);

/* The traffic of one transfer: which share of its bytes each link carries. `share_q32` is a
 * fraction of 2^32 (a single path has 2^32 on each link). */
typedef struct ds_route {
    int64_t latency_ps;
    uint32_t hops; /* links on each path */
    uint32_t n_links;
    const uint32_t *links;
    const uint64_t *share_q32;
} ds_route;

/* The route from one device to another; cached, lives as long as the topo. A device to itself has
 * no links and no latency. DS_ERR_UNREACHABLE names both. Not thread-safe for one topo; different
 * topos may be used in different threads. */
ds_status ds_topo_route(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                        ds_error *err);
/* One of the equally good paths only ({ route = "single" }): from each vertex on by the lowest link
 * id. Links are in ascending order of id, each with the whole share. Cached and owned like
 * ds_topo_route's, the same errors. */
ds_status ds_topo_route_single(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                               ds_error *err);
/* Between any two vertices (for `distsim topo --route`). */
ds_status ds_topo_route_vertices(ds_topo *topo, uint32_t from, uint32_t to, const ds_route **out,
                                 ds_error *err);

/* The least total capacity, in bytes/s, that a cut into two equal halves of the devices (in order
 * of declaration: first half | second half) leaves: max-flow between the halves. */
ds_status ds_topo_bisection(ds_topo *topo, int64_t *bytes_per_s, ds_error *err);
/* Are all devices mutually reachable? If not, *a and *b are two that are not. */
ds_status ds_topo_connected(ds_topo *topo, bool *connected, uint32_t *a, uint32_t *b,
                            ds_error *err);

/* "device", "switch", "nic", "host". */
const char *ds_topo_kind_name(ds_node_kind kind);
/* Graphviz and GraphML texts of the whole graph. */
void ds_topo_print_dot(const ds_topo *topo, ds_buf *out);
ds_status ds_topo_print_graphml(const ds_topo *topo, ds_buf *out, ds_error *err);
/* A SimGrid platform: devices as hosts, each direction of a link, the route of every ordered pair;
 * of equally good paths that of ds_topo_route_single. Errors: DS_ERR_UNREACHABLE, DS_ERR_LIMIT
 * (more than 512 devices). O(devices² · links of a route). */
ds_status ds_topo_print_simgrid(ds_topo *topo, ds_buf *out, ds_error *err);

#endif
