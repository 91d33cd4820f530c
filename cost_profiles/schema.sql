-- The cost database: what the CSV files under cost_profiles/ become at build time. STRICT tables,
-- integers wherever a value is exact. Times are picoseconds, sizes bytes, rates per second.
-- A row of measurement or fit always names its source; names compare without case.
-- Change the version below and DS_PROFILES_VERSION in sim/cost/profiles_internal.h together.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
INSERT INTO meta VALUES ('schema_version', '13');

-- Where numbers come from: one row a document or data file.
CREATE TABLE source (
    id       INTEGER PRIMARY KEY,
    key      TEXT NOT NULL UNIQUE,      -- how CSV rows name it
    title    TEXT NOT NULL CHECK (title <> ''),
    place    TEXT NOT NULL CHECK (place <> ''), -- repository and path, or document and page
    revision TEXT NOT NULL,             -- commit or date, '' if the place has none
    licence  TEXT NOT NULL CHECK (licence <> '') -- SPDX name, or 'facts' for single figures
) STRICT;

-- The hardware catalogue.
CREATE TABLE device (
    id                 INTEGER PRIMARY KEY,
    name               TEXT NOT NULL UNIQUE COLLATE NOCASE,
    memory_bytes       INTEGER NOT NULL CHECK (memory_bytes >= 0),       -- 0: not known
    memory_bytes_per_s INTEGER NOT NULL CHECK (memory_bytes_per_s >= 0), -- 0: not known
    source             INTEGER NOT NULL REFERENCES source (id)
) STRICT;

CREATE TABLE device_alias (
    alias  TEXT PRIMARY KEY COLLATE NOCASE,
    device INTEGER NOT NULL REFERENCES device (id)
) STRICT;

-- Peak dense arithmetic rate. No row: not known.
CREATE TABLE device_peak (
    device     INTEGER NOT NULL REFERENCES device (id),
    dtype      TEXT NOT NULL,
    flop_per_s INTEGER NOT NULL CHECK (flop_per_s > 0), -- multiply-add = 2
    PRIMARY KEY (device, dtype)
) STRICT;

-- Device memory that no tensor gets. No row: not known, and none is counted.
CREATE TABLE device_memory (
    device INTEGER NOT NULL REFERENCES device (id),
    -- driver: never given to programs; context: a process and its kernels;
    -- modules: beside the context, of a process that loads all kernels at its start;
    -- pair, group: each communicator of two, of more devices;
    -- blas, blaslt: workspace of the matrix library, and of its products with a bias, a stream
    what   TEXT NOT NULL
           CHECK (what IN ('driver', 'context', 'modules', 'pair', 'group', 'blas', 'blaslt')),
    bytes  INTEGER NOT NULL CHECK (bytes >= 0),
    basis  TEXT NOT NULL CHECK (basis <> ''), -- "measured: how", "stated: where", or "assumed: why"
    source INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (device, what)
) STRICT;

-- The clock that the power limit allows (sim/cost/clock.c). No row: not known, and the clock never
-- falls.
CREATE TABLE device_clock (
    device    INTEGER PRIMARY KEY REFERENCES device (id),
    power_mw  INTEGER NOT NULL CHECK (power_mw > 0), -- the limit that the device is sold with
    -- products that reach the share `busy` of the peak in a short measurement keep `sustained` of
    -- their clock when they run on and on
    sustained REAL NOT NULL CHECK (sustained > 0 AND sustained <= 1),
    busy      REAL NOT NULL CHECK (busy > 0 AND busy <= 1),
    basis     TEXT NOT NULL CHECK (basis <> ''),
    source    INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- A device kind without published operations takes the generic profile of a relative, scaled by
-- peaks and bandwidth (sim/cost/relatives.c).
CREATE TABLE device_relative (
    device   INTEGER PRIMARY KEY REFERENCES device (id),
    relative INTEGER NOT NULL REFERENCES device (id),
    basis    TEXT NOT NULL CHECK (basis <> ''),
    source   INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- How far whole steps of testbeds were from predictions by generic profiles, by part of the step
-- (sim/cost/interval.c): the logarithm of measured/predicted lies within bias - error and
-- bias + error nine times in ten. No row: no interval.
CREATE TABLE part_error (
    part   TEXT PRIMARY KEY CHECK (part IN ('step', 'compute', 'attention', 'narrow',
                                            'experts', 'communication', 'host', 'lent')),
    bias   REAL NOT NULL -- of operations alone
           CHECK (bias = 0 OR part IN ('step', 'compute', 'attention', 'narrow')),
    error  REAL NOT NULL CHECK (error >= 0),
    n      INTEGER NOT NULL CHECK (n >= 0), -- testbeds with such a part; 0: assumed, or measured apart
    basis  TEXT NOT NULL CHECK (basis <> ''),
    source INTEGER NOT NULL REFERENCES source (id)
) STRICT;

CREATE TABLE link_kind (
    name        TEXT PRIMARY KEY COLLATE NOCASE,
    bytes_per_s INTEGER NOT NULL CHECK (bytes_per_s > 0), -- one direction, per device or port
    latency_ps  INTEGER CHECK (latency_ps >= 0),          -- NULL: not known
    source      INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- A profile: one device kind with one software stack.
CREATE TABLE profile (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL UNIQUE COLLATE NOCASE,
    device   INTEGER NOT NULL REFERENCES device (id),
    issue_ps INTEGER NOT NULL CHECK (issue_ps >= 0), -- host time to issue one task
    -- compute takes 1 + interference times as long beside a transfer of the device; NULL: as long
    interference REAL CHECK (interference >= 0 AND interference <= 1000),
    -- quantiles of measured/predicted over the whole steps that its constants were fitted to
    ratio_p05 REAL CHECK (ratio_p05 > 0 AND ratio_p05 <= 1),
    ratio_p95 REAL CHECK (ratio_p95 >= 1),
    software TEXT NOT NULL,
    -- 1: what a run on this device kind takes that names no profile; one a kind
    is_default INTEGER NOT NULL CHECK (is_default IN (0, 1)),
    -- 1: fits to published tables of single operations; one a kind
    is_generic INTEGER NOT NULL CHECK (is_generic IN (0, 1)),
    -- a profile without rows and fits of its own: those of the profile `base` of the same device,
    -- lent ones included, times these factors; '': none, NULL: 1
    base TEXT NOT NULL COLLATE NOCASE,
    compute_factor REAL CHECK (compute_factor > 0),             -- operations
    communication_factor REAL CHECK (communication_factor > 0), -- collectives and transfers
    host_factor REAL CHECK (host_factor > 0),                   -- issue
    framework  TEXT NOT NULL, -- a word of the scenario's key, whose stack was measured; '': none
    -- whole measured steps that its predictions were compared with, the mean of
    -- |predicted / measured - 1|, and their split: 'val', which no fit saw, or 'calib', fitted
    steps       INTEGER NOT NULL CHECK (steps >= 0),
    step_error  REAL CHECK (step_error >= 0),
    steps_split TEXT NOT NULL CHECK (steps_split IN ('', 'calib', 'val')),
    source   INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- Measured operations. Which columns are keys depends on the class; the others are 0.
--   gemm, conv, recurrent   batch m n k     (op: 'gemm', 'conv', 'recurrent')
--   attention               batch heads kv_heads seq_q seq_kv head_dim causal   (op: 'attention')
--   memory                  tokens width    (op: the mnemonic)
CREATE TABLE op_profile (
    profile  INTEGER NOT NULL REFERENCES profile (id),
    class    TEXT NOT NULL CHECK (class IN ('gemm', 'conv', 'recurrent', 'attention', 'memory')),
    op       TEXT NOT NULL,
    dtype    TEXT NOT NULL,
    batch    INTEGER NOT NULL DEFAULT 0 CHECK (batch >= 0),
    m        INTEGER NOT NULL DEFAULT 0 CHECK (m >= 0),
    n        INTEGER NOT NULL DEFAULT 0 CHECK (n >= 0),
    k        INTEGER NOT NULL DEFAULT 0 CHECK (k >= 0),
    heads    INTEGER NOT NULL DEFAULT 0 CHECK (heads >= 0),
    kv_heads INTEGER NOT NULL DEFAULT 0 CHECK (kv_heads >= 0),
    seq_q    INTEGER NOT NULL DEFAULT 0 CHECK (seq_q >= 0),
    seq_kv   INTEGER NOT NULL DEFAULT 0 CHECK (seq_kv >= 0),
    head_dim INTEGER NOT NULL DEFAULT 0 CHECK (head_dim >= 0),
    causal   INTEGER NOT NULL DEFAULT 0 CHECK (causal IN (0, 1)),
    tokens   INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
    width    INTEGER NOT NULL DEFAULT 0 CHECK (width >= 0),
    time_ps  INTEGER NOT NULL CHECK (time_ps > 0),
    source   INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- Efficiency e(w) = e_max * w / (w + w_half) of a resource: w is FLOP for resource 'flop' and bytes
-- for resource 'bytes'; time = w / (reference_per_s * e(w)). w is clamped to [w_min, w_max].
CREATE TABLE efficiency_fit (
    profile         INTEGER NOT NULL REFERENCES profile (id),
    op              TEXT NOT NULL,     -- a mnemonic, or a class of op_profile
    dtype           TEXT NOT NULL,     -- '*': any
    resource        TEXT NOT NULL CHECK (resource IN ('flop', 'bytes')),
    kernels         TEXT NOT NULL CHECK (kernels IN ('', 'eager', 'compiled', 'fused')), -- '': any
    reference_per_s INTEGER NOT NULL CHECK (reference_per_s > 0), -- FLOP/s or bytes/s where e = 1
    e_max           REAL NOT NULL CHECK (e_max > 0),
    w_half          REAL NOT NULL CHECK (w_half >= 0),
    w_min           REAL NOT NULL CHECK (w_min > 0),
    w_max           REAL NOT NULL CHECK (w_max >= w_min),
    floor_ps        INTEGER CHECK (floor_ps >= 0),      -- no such op takes less; NULL: 0
    row_ps          INTEGER CHECK (row_ps >= 0),        -- nor less than this a token; NULL: 0
    n               INTEGER NOT NULL CHECK (n >= 0),    -- measurements fitted; 0: assumed
    median_error    REAL CHECK (median_error >= 0),     -- |predicted / measured - 1|
    p90_error       REAL CHECK (p90_error >= 0),
    ratio_p05       REAL CHECK (ratio_p05 > 0),         -- quantiles of measured / predicted
    ratio_p25       REAL CHECK (ratio_p25 > 0),
    ratio_p50       REAL CHECK (ratio_p50 > 0),
    ratio_p75       REAL CHECK (ratio_p75 > 0),
    ratio_p95       REAL CHECK (ratio_p95 > 0),
    basis           TEXT NOT NULL CHECK (basis <> ''),  -- which rows, or "assumed: why"
    source          INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (profile, op, dtype, resource, kernels)
) STRICT;

-- Matrix products by tiles and waves (sim/cost/gemm.h has the formula). w is FLOP.
CREATE TABLE gemm_fit (
    profile         INTEGER NOT NULL REFERENCES profile (id),
    dtype           TEXT NOT NULL,
    processors      INTEGER NOT NULL CHECK (processors > 0), -- that work on a tile each
    flop_per_s      INTEGER NOT NULL CHECK (flop_per_s > 0), -- of all of them where e_max = 1
    bytes_per_s     INTEGER NOT NULL CHECK (bytes_per_s > 0), -- of memory where e_memory = 1
    e_max           REAL NOT NULL CHECK (e_max > 0),
    tail            REAL NOT NULL CHECK (tail >= 0 AND tail <= 1),
    prologue        REAL NOT NULL CHECK (prologue >= 0),      -- in steps of k
    port            REAL NOT NULL CHECK (port >= 0),
    e_memory        REAL NOT NULL CHECK (e_memory > 0),
    overlap         REAL NOT NULL CHECK (overlap >= 0 AND overlap <= 1),
    launch_us       REAL NOT NULL CHECK (launch_us >= 0),
    format          TEXT NOT NULL DEFAULT '', -- of the scales of a narrow dtype
    resident        INTEGER CHECK (resident >= 0), -- tiles a processor; 0: the older form
    lone            REAL CHECK (lone >= 0),
    cut_us          REAL CHECK (cut_us >= 0),
    sag             REAL CHECK (sag >= 0),
    sag_us          REAL CHECK (sag_us >= 0),
    convert_us      REAL CHECK (convert_us >= 0), -- of operands converted before the product:
    convert_gb_per_s REAL CHECK (convert_gb_per_s >= 0), -- convert_us + bytes moved / this
    w_min           REAL NOT NULL CHECK (w_min > 0),
    w_max           REAL NOT NULL CHECK (w_max >= w_min),
    n               INTEGER NOT NULL CHECK (n >= 0),
    median_error    REAL CHECK (median_error >= 0),     -- of the fitted rows
    p90_error       REAL CHECK (p90_error >= 0),
    shape_median_error  REAL, -- of rows predicted without those of their n and k,
    shape_p90_error     REAL,
    family_median_error REAL, -- without those of their source,
    family_p90_error    REAL,
    size_median_error   REAL, -- without those of their m
    size_p90_error      REAL,
    ratio_p05       REAL CHECK (ratio_p05 > 0),         -- quantiles of measured / predicted
    ratio_p25       REAL CHECK (ratio_p25 > 0),
    ratio_p50       REAL CHECK (ratio_p50 > 0),
    ratio_p75       REAL CHECK (ratio_p75 > 0),
    ratio_p95       REAL CHECK (ratio_p95 > 0),
    basis           TEXT NOT NULL CHECK (basis <> ''),
    source          INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (profile, dtype, format)
) STRICT;

-- Fused attention by blocks and waves (sim/cost/attention.h has the formula). w is FLOP.
CREATE TABLE attention_fit (
    profile         INTEGER NOT NULL REFERENCES profile (id),
    kernel          TEXT NOT NULL CHECK (kernel <> ''),
    direction       TEXT NOT NULL CHECK (direction IN ('fwd', 'bwd')),
    dtype           TEXT NOT NULL,
    dim_least       INTEGER NOT NULL CHECK (dim_least > 0), -- dims of queries that the row is for
    dim_most        INTEGER NOT NULL CHECK (dim_most >= dim_least),
    -- 1: the kernel that counts where none is named
    is_default      INTEGER NOT NULL CHECK (is_default IN (0, 1)),
    processors      INTEGER NOT NULL CHECK (processors > 0),
    flop_per_s      INTEGER NOT NULL CHECK (flop_per_s > 0), -- of all of them where e_max = 1
    bytes_per_s     INTEGER NOT NULL CHECK (bytes_per_s > 0), -- of memory where e_memory = 1
    block_rows      INTEGER NOT NULL CHECK (block_rows > 0),
    head_step       INTEGER NOT NULL CHECK (head_step > 0),
    skips_window    INTEGER NOT NULL CHECK (skips_window IN (0, 1)),
    e_max           REAL NOT NULL CHECK (e_max > 0),
    score           REAL NOT NULL CHECK (score >= 0),         -- in dims
    prologue        REAL NOT NULL CHECK (prologue >= 0),      -- in keys of 128 dims
    tail            REAL NOT NULL CHECK (tail >= 0 AND tail <= 1),
    e_memory        REAL NOT NULL CHECK (e_memory > 0),
    overlap         REAL NOT NULL CHECK (overlap >= 0 AND overlap <= 1),
    launch_us       REAL NOT NULL CHECK (launch_us >= 0),
    token_ns        REAL NOT NULL CHECK (token_ns >= 0),
    w_min           REAL NOT NULL CHECK (w_min > 0),
    w_max           REAL NOT NULL CHECK (w_max >= w_min),
    n               INTEGER NOT NULL CHECK (n >= 0),
    median_error    REAL CHECK (median_error >= 0),     -- of the fitted rows
    p90_error       REAL CHECK (p90_error >= 0),
    family_median_error REAL, -- of rows predicted without those of their heads and head dim,
    family_p90_error    REAL,
    size_median_error   REAL, -- without those of their queries
    size_p90_error      REAL,
    -- quantiles of measured / predicted, rows left out; none without rows of the device
    ratio_p05       REAL CHECK (ratio_p05 IS NULL OR (ratio_p05 > 0 AND n > 0)),
    ratio_p25       REAL CHECK (ratio_p25 > 0),
    ratio_p50       REAL CHECK (ratio_p50 > 0),
    ratio_p75       REAL CHECK (ratio_p75 > 0),
    ratio_p95       REAL CHECK (ratio_p95 > 0),
    rows_device     TEXT NOT NULL, -- whose rows of tests/data/ops/attention.csv were fitted
    rows_kernel     TEXT NOT NULL,
    basis           TEXT NOT NULL CHECK (basis <> ''),
    source          INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (profile, kernel, direction, dtype, dim_least)
) STRICT;

-- Measured collectives inside one node; size as nccl-tests counts it.
CREATE TABLE collective_profile (
    profile    INTEGER NOT NULL REFERENCES profile (id),
    collective TEXT NOT NULL,
    group_size INTEGER NOT NULL CHECK (group_size >= 2),
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    time_ps    INTEGER NOT NULL CHECK (time_ps > 0),
    source     INTEGER NOT NULL REFERENCES source (id)
) STRICT;

-- What a collective costs beyond its phases: time = launch + steps * (alpha + step)
--   + wire bytes / (capacity * e(size)), e(size) = e_max * size / (size + s_half),
-- or, where collective_profile has rows of the same (collective, group_size), the e that gives their
-- times at the reference capacity and alpha.
CREATE TABLE collective_fit (
    profile              INTEGER NOT NULL REFERENCES profile (id),
    collective           TEXT NOT NULL,
    group_size           INTEGER NOT NULL CHECK (group_size >= 2),
    capacity_bytes_per_s INTEGER NOT NULL CHECK (capacity_bytes_per_s > 0), -- where e = 1
    alpha_ps             INTEGER NOT NULL CHECK (alpha_ps >= 0),  -- route latency of one step
    launch_ps            INTEGER NOT NULL CHECK (launch_ps >= 0),
    step_ps              INTEGER NOT NULL CHECK (step_ps >= 0),
    e_max                REAL NOT NULL CHECK (e_max > 0 AND e_max <= 1),
    s_half               REAL NOT NULL CHECK (s_half >= 0),       -- bytes
    holds_compute        INTEGER NOT NULL CHECK (holds_compute IN (0, 1)), -- no compute beside it
    n                    INTEGER NOT NULL CHECK (n >= 0),
    median_error         REAL CHECK (median_error >= 0),
    p90_error            REAL CHECK (p90_error >= 0),
    basis                TEXT NOT NULL CHECK (basis <> ''),
    source               INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (profile, collective, group_size)
) STRICT;

-- Protocols of a collective on links of one capacity, of which the fastest counts:
--   time = launch + size / copy + steps * (alpha + step) + flow / e
-- where steps, alpha and flow (the time that links of full capacity take) come from the simulated
-- algorithm and topology: any group, any size.
CREATE TABLE collective_protocol (
    profile          INTEGER NOT NULL REFERENCES profile (id),
    collective       TEXT NOT NULL,
    link_bytes_per_s INTEGER NOT NULL CHECK (link_bytes_per_s > 0), -- the slowest link it uses
    protocol         TEXT NOT NULL,
    launch_ps        INTEGER NOT NULL CHECK (launch_ps >= 0),
    step_ps          INTEGER NOT NULL CHECK (step_ps >= 0),
    copy_bytes_per_s INTEGER NOT NULL CHECK (copy_bytes_per_s >= 0), -- 0: free
    e                REAL NOT NULL CHECK (e > 0 AND e <= 1),
    least_bytes      INTEGER NOT NULL CHECK (least_bytes >= 0), -- sizes that it is used for
    most_bytes       INTEGER NOT NULL CHECK (most_bytes >= 0),  -- 0: without an end
    least_group      INTEGER NOT NULL CHECK (least_group >= 0), -- groups that it is used for
    most_group       INTEGER NOT NULL CHECK (most_group >= 0),  -- 0: without an end
    -- What the rows had that were fitted; beyond it a cost is marked extrapolated. 0: not stated.
    group_least      INTEGER NOT NULL CHECK (group_least >= 0),
    group_most       INTEGER NOT NULL CHECK (group_most >= group_least),
    nodes_least      INTEGER NOT NULL CHECK (nodes_least >= 0), -- islands of fast links
    nodes_most       INTEGER NOT NULL CHECK (nodes_most >= nodes_least),
    size_least       INTEGER NOT NULL CHECK (size_least >= 0),  -- bytes
    size_most        INTEGER NOT NULL CHECK (size_most >= size_least),
    link_least_bytes_per_s INTEGER CHECK (link_least_bytes_per_s >= 0), -- slowest link of a row
    link_most_bytes_per_s  INTEGER CHECK (link_most_bytes_per_s >= link_least_bytes_per_s),
    n                INTEGER NOT NULL CHECK (n >= 0),   -- measurements fitted; 0: assumed
    median_error     REAL CHECK (median_error >= 0),
    p90_error        REAL CHECK (p90_error >= 0),
    basis            TEXT NOT NULL CHECK (basis <> ''),
    source           INTEGER NOT NULL REFERENCES source (id),
    PRIMARY KEY (profile, collective, link_bytes_per_s, protocol)
) STRICT;
