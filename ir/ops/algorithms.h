/* Which collective is done by which algorithm: a line an algorithm.
 *
 * A new algorithm is a line here and its function in sim/coll. From the line come the names that
 * the attribute `algorithm` takes (ops.def), the function's declaration (sim/coll/internal.h), the
 * choice where a program names no algorithm and the choice of "fastest" (sim/coll/coll.c).
 *
 *     X(function, name, a cell for each kind of collective)
 *
 *     NO    the collective is not done so
 *     HAS   the collective is done so if the program names the algorithm or "fastest"
 *     BEST  the algorithm also competes where the program names none
 *     VIA   of a reshard that is one collective, the name goes to that collective
 *
 * Of equal times the first line wins. What competes is what NCCL chooses from; the other algorithms
 * are slower there for reasons that bytes and latencies do not show, or are not part of NCCL.
 * `send`, `permute`, `offload` and `reload` are `direct` always: column `move`. */
#ifndef DS_OPS_ALGORITHMS_H
#define DS_OPS_ALGORITHMS_H

// clang-format off
/* function, name                        all_reduce  all_gather      all_to_all  broadcast  gather   move  reshard
                                                     reduce_scatter              reduce     scatter                */
#define DS_ALGORITHMS(X)                                                                                           \
    X(ring, "ring",                           BEST,  BEST,           NO,         BEST,      NO,      NO,   VIA)    \
    X(tree, "tree",                           BEST,  NO,             NO,         BEST,      HAS,     NO,   VIA)    \
    X(direct, "direct",                       HAS,   HAS,            BEST,       HAS,       BEST,    BEST, VIA)    \
    X(switch, "switch",                       BEST,  BEST,           NO,         BEST,      NO,      NO,   VIA)    \
    X(halving, "halving_doubling",            HAS,   HAS,            NO,         NO,        NO,      NO,   VIA)    \
    X(hierarchical, "hierarchical",           HAS,   HAS,            NO,         NO,        NO,      NO,   VIA)    \
    X(pxn, "pxn",                             NO,    NO,             BEST,       NO,        NO,      NO,   VIA)    \
    X(collectives, "collectives",             NO,    NO,             NO,         NO,        NO,      NO,   BEST)   \
    X(send_recv, "send_recv",                 NO,    NO,             NO,         NO,        NO,      NO,   BEST)   \
    X(send_recv_gather, "send_recv_gather",   NO,    NO,             NO,         NO,        NO,      NO,   BEST)   \
    X(broadcast, "broadcast",                 NO,    NO,             NO,         NO,        NO,      NO,   BEST)
// clang-format on

/* DS_BY(KIND): the names of a kind of collective as text, "ring,tree,". Of gathers and scatters
 * what competes comes first. */
#define DS_BY(kind)                                        DS_BY_##kind
#define DS_BY_ALL_REDUCE                                   DS_ALGORITHMS(DS_BY_ALL_REDUCE_)
#define DS_BY_ALL_GATHER                                   DS_ALGORITHMS(DS_BY_ALL_GATHER_)
#define DS_BY_ALL_TO_ALL                                   DS_ALGORITHMS(DS_BY_ALL_TO_ALL_)
#define DS_BY_BROADCAST                                    DS_ALGORITHMS(DS_BY_BROADCAST_)
#define DS_BY_GATHER                                       DS_ALGORITHMS(DS_BY_BEST_) DS_ALGORITHMS(DS_BY_OTHERS_)
#define DS_BY_RESHARD                                      DS_ALGORITHMS(DS_BY_RESHARD_)
#define DS_BY_ALL_REDUCE_(f, name, cell, ...)              DS_IF_##cell(name)
#define DS_BY_ALL_GATHER_(f, name, a, cell, ...)           DS_IF_##cell(name)
#define DS_BY_ALL_TO_ALL_(f, name, a, b, cell, ...)        DS_IF_##cell(name)
#define DS_BY_BROADCAST_(f, name, a, b, c, cell, ...)      DS_IF_##cell(name)
#define DS_BY_BEST_(f, name, a, b, c, d, cell, ...)        DS_IF_BEST_##cell(name)
#define DS_BY_OTHERS_(f, name, a, b, c, d, cell, ...)      DS_IF_OTHER_##cell(name)
#define DS_BY_RESHARD_(f, name, a, b, c, d, e, move, cell) DS_IF_##cell(name)
#define DS_IF_NO(name)
#define DS_IF_HAS(name)  name ","
#define DS_IF_BEST(name) name ","
#define DS_IF_VIA(name)  name ","
#define DS_IF_BEST_NO(name)
#define DS_IF_BEST_HAS(name)
#define DS_IF_BEST_BEST(name) name ","
#define DS_IF_OTHER_NO(name)
#define DS_IF_OTHER_HAS(name) name ","
#define DS_IF_OTHER_BEST(name)

#endif
