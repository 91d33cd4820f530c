/* What an operation costs on a device, and where the number comes from.
 *
 * Everything is loaded from profiles.db into memory once; a loaded ds_profiles is immutable (but
 * for its owner, see sim/cost/constant.h) and may be shared between threads. A *profile* is a named
 * set of measured rows and fitted constants for one device kind and software stack (a folder of
 * cost_profiles/). Without one, an op costs its roofline at catalogue peaks and a collective its
 * latency and bandwidth, nothing added. */
#ifndef DS_COST_COST_H
#define DS_COST_COST_H

#include "ir/base/str.h"
#include "ir/ops/kernels.h"
#include "ir/strategy/terms.h"
#include "ir/strategy/what_if.h"
#include "sim/cost/exchange.h"

typedef struct ds_profiles ds_profiles;

/* Opens `path` read-only (mode=ro&immutable=1), checks the schema version, loads all tables.
 * path NULL: $DISTSIM_PROFILES, then profiles.db beside the program (a build tree), then
 * ../share/distsim/profiles.db from there (an installation), then the configured share folder's.
 * Errors: DS_ERR_IO, DS_ERR_DATA (more than tables and indexes, a row without a source, an unknown
 * version). */
ds_status ds_profiles_load(const char *path, ds_profiles **out, ds_error *err);
void ds_profiles_free(ds_profiles *profiles);
/* Appends the path that NULL stands for. */
void ds_profiles_default_path(ds_buf *out);
/* A hash of all that was loaded, sources included; the same for every copy of a database. */
uint64_t ds_profiles_hash(const ds_profiles *profiles);

/* Device memory that no tensor gets (catalogue/memory.csv); 0: not known. */
typedef struct ds_reserved_memory {
    int64_t driver_bytes;  /* of the nominal size, what the driver never gives out */
    int64_t context_bytes; /* a process: its context and the kernels that it loads */
    int64_t modules_bytes; /* beside the context, where a process loads all kernels at its start */
    int64_t pair_bytes;    /* each communicator of two devices */
    int64_t group_bytes;   /* each communicator of more */
    int64_t blas_bytes;    /* workspace of the matrix library, a handle and stream */
    int64_t blaslt_bytes;  /* of its products with a bias, a stream */
} ds_reserved_memory;

/* The clock that the power limit allows (catalogue/clocks.csv); 0: not known. */
typedef struct ds_device_clock {
    int64_t power_mw; /* the limit that the device is sold with */
    double sustained; /* of the clock of a short measurement, what products keep that reach */
    double busy;      /* this share of the peak in the measurement */
} ds_device_clock;

/* A device kind of the hardware catalogue. */
typedef struct ds_device_kind {
    const char *name;                       /* canonical */
    int64_t memory_bytes;                   /* 0: not known */
    int64_t memory_bytes_per_s;             /* 0: not known */
    double peak_flop_per_s[DS_DTYPE_COUNT]; /* dense; 0: not known */
    ds_reserved_memory reserved;
    ds_device_clock clock;
    uint32_t lender; /* 1 + the kind whose generic profile this kind borrows; 0: none */
    const char *source;
} ds_device_kind;

const ds_device_kind *ds_profiles_kind(const ds_profiles *profiles, uint32_t kind);
/* By name or alias, case-insensitive. DS_ERR_NAME with a suggestion. */
ds_status ds_profiles_find_kind(const ds_profiles *profiles, const char *name, ds_loc loc,
                                uint32_t *kind, ds_error *err);

/* A profile by name, case-insensitive. It belongs to one device kind. Profile id 0 is "ideal", the
 * catalogue's peaks, of no kind: ds_profile_kind is UINT32_MAX. DS_ERR_NAME with what may be meant:
 * profiles of the device that has this name, else names like it, else all there are. */
ds_status ds_profiles_find_profile(const ds_profiles *profiles, const char *name, ds_loc loc,
                                   uint32_t *profile, ds_error *err);
/* Does a device kind for which a run names no profile take the default profile of the kind? False
 * until this is called, before the profiles are shared. */
void ds_profiles_use_defaults(ds_profiles *profiles, bool use);
/* The same profiles without the terms of the set (ir/strategy/terms.h), in the arena; `profiles`
 * itself for none. `profiles` must outlive the copy. O(1). */
const ds_profiles *ds_profiles_without(const ds_profiles *profiles, uint32_t terms,
                                       ds_arena *arena);
/* Does the term count? */
bool ds_profiles_has(const ds_profiles *profiles, ds_term term);
/* The same profiles on a machine with other rates, in the arena; `profiles` itself if all are as they
 * are. Hosts and terms of collectives follow; whoever plans an op asks for the rates of devices. */
const ds_profiles *ds_profiles_what_if(const ds_profiles *profiles, const ds_what_if *what_if,
                                       ds_arena *arena);
/* How many times as much of the resource there is, in 10^-9. */
int64_t ds_profiles_rate_ppb(const ds_profiles *profiles, ds_resource resource);
/* The default profile of the kind: the one that is marked, else the generic one; 0: the kind has
 * neither, or defaults are not used. */
uint32_t ds_profiles_default(const ds_profiles *profiles, uint32_t kind);
/* Is `name` the word for the generic profile of each device kind ("generic")? */
bool ds_profiles_means_generic(const char *name);
/* The generic profile of the kind. Its constants are fits to published tables of single operations,
 * and belong to no testbed; or a relative's fits, scaled (relatives.c). 0: the kind has none. */
uint32_t ds_profiles_generic(const ds_profiles *profiles, uint32_t kind);
/* A new profile of the kind with the fits of the lender's generic profile, as a kind without
 * published operations borrows them: how wrong are loans of kinds that were measured? 0: the lender
 * has none of its own, or is the kind. O(fits). */
uint32_t ds_profiles_lend(ds_profiles *profiles, uint32_t kind, uint32_t lender);
bool ds_profile_is_generic(const ds_profiles *profiles, uint32_t profile);
uint32_t ds_profile_kind(const ds_profiles *profiles, uint32_t profile);
const char *ds_profile_name(const ds_profiles *profiles, uint32_t profile);
const char *ds_profile_software(const ds_profiles *profiles, uint32_t profile);
/* The scenario's word for the framework whose stack was measured; "": none. */
const char *ds_profile_framework(const ds_profiles *profiles, uint32_t profile);
/* Whole measured steps that the profile's predictions were compared with (tests/data/e2e). */
typedef struct ds_profile_steps {
    int64_t n;    /* 0: no whole step was measured */
    double error; /* the mean of |predicted / measured - 1| */
    bool fitted;  /* the constants were fitted to these steps; else no fit saw them */
} ds_profile_steps;
ds_profile_steps ds_profile_measured_steps(const ds_profiles *profiles, uint32_t profile);
uint32_t ds_profiles_n_profiles(const ds_profiles *profiles);
/* 2^32 · (1 + interference): how much longer compute takes while a transfer of the device runs;
 * 2^32 without a profile, or where the profile gives none. */
uint64_t ds_profile_slow_q32(const ds_profiles *profiles, uint32_t profile);
/* Does some collective of the profile go on the compute stream? */
bool ds_profile_holds_compute(const ds_profiles *profiles, uint32_t profile);
/* Does the profile say anything of operations, measured or fitted? Else they cost the catalogue's
 * peaks. */
bool ds_profile_has_compute(const ds_profiles *profiles, uint32_t profile);
/* Host time to issue one task, 0 without a profile. */
int64_t ds_profile_issue_ps(const ds_profiles *profiles, uint32_t profile);
/* The same of one of these kernels, of a generic profile (ISSUE of ir/ops/kernels.def). */
int64_t ds_profile_kernels_issue_ps(const ds_profiles *profiles, uint32_t profile,
                                    ds_kernel_stack kernels);

typedef enum ds_cost_origin {
    DS_COST_EXACT,
    DS_COST_INTERPOLATED,
    DS_COST_ROOFLINE,
    DS_COST_GIVEN,
    DS_COST_ORIGIN_COUNT
} ds_cost_origin;
const char *ds_cost_origin_name(ds_cost_origin origin);

typedef enum ds_cost_mode { DS_COST_MEASURED, DS_COST_FITTED } ds_cost_mode;

/* Nine in ten measurements lie from low to high times the prediction of a fit (the 5th and 95th
 * percentile of the fit's residuals). 0: not known. */
typedef struct ds_cost_spread {
    double low, high;
} ds_cost_spread;
/* A curve of bytes by the name of its op, of any kernels and dtype: w bytes take
 * max(floor, (w + w_half)/(reference e_max)). False: the profile has none. */
typedef struct ds_cost_curve {
    double reference_per_s, e_max, w_half, floor_s;
    ds_cost_spread spread;
} ds_cost_curve;
bool ds_profile_curve(const ds_profiles *profiles, uint32_t profile, const char *op,
                      ds_cost_curve *out);

/* Has the profile fits of that kernel's attention? If not, `known` (not NULL) gets the kernels that
 * the profile has fits of, separated by commas; nothing if there are none. O(fits). */
bool ds_profile_has_attention(const ds_profiles *profiles, uint32_t profile, const char *kernel,
                              ds_buf *known);

/* How many times as long as by a profile's rows and fits a cluster takes, part by part (profile.csv:
 * compute_factor, communication_factor, host_factor): few measured steps tell no more. */
typedef struct ds_cost_factors {
    double compute;       /* operations */
    double communication; /* collectives and transfers */
    double host;          /* issue */
} ds_cost_factors;

/* 1, 1, 1 where the profile states none. */
ds_cost_factors ds_profile_factors(const ds_profiles *profiles, uint32_t profile);

/* The parts of a step whose predictions by a generic profile err unlike, in order of
 * catalogue/intervals.csv. COMPUTE to NARROW share out the operations; EXPERTS and LENT overlap them. */
#define DS_PART_MAP(X)                                                                             \
    X(STEP, "step")                   /* all of it: what a testbed has of its own */               \
    X(COMPUTE, "compute")             /* all other operations */                                   \
    X(ATTENTION, "attention")         /* fused attention */                                        \
    X(NARROW, "narrow")               /* products of 8 bits and fewer */                           \
    X(EXPERTS, "experts")             /* routing, exchange, grouped products */                    \
    X(COMMUNICATION, "communication") /* transfers that no compute hides */                        \
    X(HOST, "host")                   /* the host's issue, hidden or not */                        \
    X(LENT, "lent")                   /* compute by the curves of a relative */
typedef enum ds_step_part {
#define DS_X(id, name) DS_PART_##id,
    DS_PART_MAP(DS_X)
#undef DS_X
        DS_PART_COUNT
} ds_step_part;
const char *ds_step_part_name(ds_step_part part);
/* COMPUTE, ATTENTION or NARROW. */
ds_step_part ds_step_part_of(const ds_work *work);

/* Of the logarithm of measured/predicted: nine in ten lie within bias - error and bias + error. Only
 * STEP, which all operations share, and the parts of operations have a bias. */
typedef struct ds_part_error {
    double bias, error;
} ds_part_error;
/* A part's by catalogue/intervals.csv; 0 and 0 where the catalogue has none. */
ds_part_error ds_profiles_part_error(const ds_profiles *profiles, ds_step_part part);

/* Where measured steps lie whose shares of these parts are `share` (of the whole; STEP is 1): nine in
 * ten from low to high times the prediction by a generic profile,
 *   e^(± error),  error² = Σ (share error_k)²
 * by catalogue/intervals.csv; without the term `step`, around e^(Σ share (bias_STEP + bias_k)) over the
 * parts of operations. 0 and 0 where the catalogue has none, and for other profiles. */
ds_cost_spread ds_profile_step_spread(const ds_profiles *profiles, uint32_t profile,
                                      const double share[DS_PART_COUNT]);

/* Of whole steps, where the profile's constants were fitted to such; else 0 and 0. */
ds_cost_spread ds_profile_spread(const ds_profiles *profiles, uint32_t profile);

typedef struct ds_cost {
    int64_t ps; /* rounded up */
    ds_cost_origin origin;
    bool fitted;           /* roofline: by a profile's fit, not by the catalogue's peak */
    bool extrapolated;     /* outside the fitted range, clamped at its end */
    ds_cost_spread spread; /* of a fitted one */
    int64_t clock_ppb;     /* part of the clock that ds_cost_clock left, in 10^-9; 0: whole */
    int64_t sagged_ppb;    /* part of the clock that a fit left already; 0: whole */
} ds_cost;

/* What one device does. */
typedef struct ds_cost_query {
    const ds_profiles *profiles;
    uint32_t kind, profile; /* of the device; profile 0: none */
    const char *op;         /* the mnemonic */
    const ds_work *work;
    ds_loc loc; /* of errors */
    ds_kernel_stack kernels;
    int32_t extra_launches; /* kernels beyond one that share the work, -1: none is launched, since
                               the work is part of another op's kernel (ir/ops/kernels.h) */
    bool passes;            /* bytes are those of the kernels' passes through memory: the curve of
                               the op's class counts, not that of the op */
    int64_t n_devices;      /* that wait for each other in a step; 0, 1: one by itself */
    const char *kernel;     /* attention: a kernel that the profile has fits of, or a word that
                               begins with such a name; NULL: that of the stack */
} ds_cost_query;

/* Time of one op on one device, the first of these that there is:
 *   exact         the profile's row of this shape (the median, if it was measured more than once)
 *   interpolated  t0 + (t1 - t0)(x - x0)/(x1 - x0) between rows whose keys differ in x alone, with
 *                 x0 < x < x1 <= 2 x0; x is m of a GEMM, tokens of a memory op, batch of attention
 *   roofline      max(flop/(F e_F(flop)), bytes/(B e_B(bytes))), e(w) = e_max w/(w + w_half) from
 *                 the profile's fits with w clamped to the fitted range; without a fit F and B are
 *                   the catalogue's peaks and e = 1. A curve of the query's kernels comes before
 *                 a curve of any; a memory-bound op takes at least its curve's row_ps a token
 * DS_COST_FITTED goes straight to the roofline. A profile of another device kind than `kind` counts
 * as none. Products of a dtype
 * for which the profile has a fit by tiles and waves (gemm.h) take its time instead of the
 * roofline's, and attention the time by blocks and waves (attention.h) of the
 * query's kernel, else of the stack's, else of the profile's default one. bf16 and f16 stand in for
 * each other where the device's peaks for both are equal.
 * If `explain` is not NULL the derivation is appended to it, with sources.
 * Errors: DS_ERR_COST when neither peak nor fit exists for the dtype. O(log rows + fits). */
ds_status ds_cost_op(const ds_cost_query *query, ds_cost_mode mode, ds_cost *out, ds_buf *explain,
                     ds_error *err);

/* The two sides of the roofline of an op, in seconds: its FLOPs and its bytes at the rates that
 * ds_cost_op goes by; negative: not known, or there are none. Of a product by tiles and waves, what
 * none with as many FLOPs and as many bytes takes less than. */
void ds_cost_sides(const ds_cost_query *query, double *compute_s, double *memory_s);
/* Makes a cost that of a device whose clock falls under load (clock.c): cost->ps ·
 * max(t_c/clock, t_m) / max(t_c, t_m), rounded up. `clock_ppb` (10^-9) is the part of the boost
 * clock that the topology says the device keeps; whole: not said. `power_mw` is the power cap that
 * the topology says; 0: the limit that the device is sold with.
 *   catalogue's peaks       clock_ppb, or what the cap leaves of the clock if there is a cap
 *   fits of generic         the same; without either, what the catalogue's limit leaves, for the
 *   profiles                fits are of short measurements
 *   other fits, measured    what a cap leaves of the clock at the device's own limit: they were
 *   rows                    taken at the clock that there was
 * A line about it goes to `explain` unless that is NULL. DS_ERR_OVERFLOW. */
ds_status ds_cost_clock(const ds_cost_query *query, int64_t clock_ppb, int64_t power_mw,
                        ds_cost *cost, ds_buf *explain, ds_error *err);
/* What a cap of power_mw leaves of the clock at which an op reaches the share `busy` of the peak,
 * in 10^-9. O(1). */
int64_t ds_clock_part(const ds_device_clock *clock, int64_t power_mw, double busy);
/* How many times as long the slowest of n equal devices computes as one of them on average: 1 + s m(n)
 * with m(n) the expected largest of n normal variables, in a line between powers of 2, and s =
 * 0.015 (clock.c says from where); n beyond 2^20 counts as that. 1 for n < 2. O(log n). */
double ds_clock_slowest(int64_t n);
/* Makes a whole device's time that of one with these shares left, in 10^-9 (degrade.c):
 * *ps · max(t_c/c, t_m/m) / max(t_c, t_m), rounded up; *ps / c where neither side is known.
 * DS_ERR_OVERFLOW. */
ds_status ds_cost_degrade(double compute_s, double memory_s, int64_t compute_ppb,
                          int64_t memory_ppb, int64_t *ps, ds_error *err);

/* What a profile adds to a collective of `bytes` (S, the nccl-tests size) over `group` devices:
 *   time = launch + Σ phases (steps·(alpha + step) + bytes/(capacity·efficiency))
 * launch and extra per-step latency in ps, efficiency as a rational num/2^32 ≤ 1; 0, 0 and 2^32
 * without a profile. The terms come from the profile's fit for this collective and group size and,
 * where it has measured rows, from those: piecewise linear in time over size, turned into the
 * efficiency e that gives that time for a ring on links of the fit's capacity C and latency. Sizes
 * outside the rows keep the efficiency of the nearest, without a protocol for them. A group size
 * that was not profiled takes launch and step of the largest smaller one (else of the smallest) and
 * an efficiency linear in the group size between its neighbours; a collective that was not profiled
 * takes all_reduce's terms at the size that puts the same bytes on the wire.
 *
 * That e holds on links of capacity C alone: at small sizes it is low because of time that passes
 * whatever the bandwidth, and such a time is no factor on another link. The slowest link
 * that the group uses may have another capacity (links.slowest_bytes_per_s; 0: the fit's own):
 *   launch grows by the latency wire/(C·e) − wire/(C·e_sat), and efficiency becomes e_sat,
 * e_sat being the e of the largest measured size, e_max of a curve, and at least e; wire =
 * 2(n−1)/n·S for an all_reduce, S for a send. At a capacity of C both forms take the same time.
 *
 * Or it has protocols (as NCCL's LL, LL128 and Simple), fitted on links of one kind for all groups
 * and sizes. Of those that take the size the one
 * counts that is fastest for a ring,
 *   launch + S/copy + steps·step + flow/e
 * with the flow of the simulated phases; launch + S/copy, step and e are then the terms. They are
 * used where no row or curve was made on these links, and on links of the rows for sizes outside of
 * them that a protocol is for. Of protocols that do not say which
 * links they saw, a capacity over 2.5 times off the fit's is extrapolation. Source: NVIDIA/nccl
 * src/graph/tuning.cc (latencies and bandwidth a protocol).
 *
 * Rows without a fit (imported from a log of nccl-tests, say) do not name their links, and count as
 * measured on the links in use: with e the flow on these links, after wait_ps, takes the measured
 * time. Two exceptions compare the links' rate with the highest rate of the profile's rows. Links of
 * less than a 2.5th of that rate are other links, as above, and that rate is C. Links of over 2.5 times
 * that rate count as extrapolation.
 *
 * `extrapolated`: the links, the number of nodes, the group or the size lie outside the rows of the
 * fit. Ranges of the rows of protocols are in the table of protocols; rows of a group are of one node. The
 * spread is then at least that of rows left out of fits in the same way. `holds_compute`: on that
 * stack no compute ran beside this collective; it belongs on the members' compute stream.
 * Errors: DS_ERR_VALUE for negative bytes, DS_ERR_OVERFLOW. O(fits + rows). */
typedef struct ds_coll_links {
    int64_t slowest_bytes_per_s; /* capacity of the link that holds the collective up; 0: unknown */
    double changed;   /* `what_if` gives the link so many times that capacity, and flow_ps is of the
                       changed link: the terms' own source stays, and what small sizes lose is a
                       latency; 0: nothing is said of the link */
    int64_t flow_ps;  /* what the bytes take at full capacity; 0: as a ring on links of the fit's */
    int64_t wait_ps;  /* latencies of all steps of the algorithm that takes flow_ps */
    uint32_t n_nodes; /* islands of fast links that the group spans (ds_topo_island); 0: unknown */
    /* Of an exchange of tokens: what is sent, and the rates between two devices of an island and of
     * two islands; 0: there are no two. Its fits are in exchange.h. */
    const ds_exchange *exchange;
    int64_t inside_bytes_per_s, between_bytes_per_s;
} ds_coll_links;

typedef struct ds_coll_demand {
    const char *collective; /* the mnemonic */
    uint32_t group;         /* members */
    int64_t bytes;
    ds_coll_links links;
} ds_coll_demand;

typedef struct ds_coll_cost {
    int64_t launch_ps; /* with copy_ps */
    int64_t copy_ps;   /* bytes that a protocol copies */
    int64_t step_ps;
    uint64_t efficiency_q32;
    bool from_profile;
    bool extrapolated;
    bool holds_compute;
    ds_cost_spread spread; /* of the whole time, by a curve or protocol */
} ds_coll_cost;
ds_status ds_cost_collective(const ds_profiles *profiles, uint32_t profile,
                             const ds_coll_demand *demand, ds_coll_cost *out, ds_buf *explain,
                             ds_error *err);

#endif
