/* Topologies, meshes, schedules and the scenario. */
#include "ir/lang/parse.h"

#include <string.h>

static void add_item(ds_parser *p, ds_item_kind kind, uint32_t index) {
    DS_PUSH(p->arena, &p->module->items, ((ds_item){kind, index}));
}

/* ---- topology ---- */

static const struct {
    const char *word;
    ds_node_kind kind;
} node_kinds[] = {{"device", DS_NODE_DEVICE},
                  {"switch", DS_NODE_SWITCH},
                  {"nic", DS_NODE_NIC},
                  {"host", DS_NODE_HOST},
                  {"node", DS_NODE_INSTANCE}};

enum { N_NODE_KINDS = sizeof node_kinds / sizeof node_kinds[0] };

/* gpu[8] : "A100-SXM4-80GB" {forward = true}, or n[128] : @dgx */
static ds_node_decl parse_node(ds_parser *p, ds_node_kind kind) {
    ds_token name = ds_parser_expect_new_name(p, "for the node");
    ds_node_decl node = {.kind = kind, .name = name.name, .loc = name.loc};
    if (ds_parser_accept(p, DS_TOK_LBRACKET)) {
        node.count = ds_parse_expr(p);
        ds_parser_expect(p, DS_TOK_RBRACKET, "after the count");
    }
    if (ds_parser_accept(p, DS_TOK_COLON)) {
        if (kind == DS_NODE_INSTANCE)
            node.type_name = ds_parse_qualified(p, "of a topology");
        else
            node.type_name =
                ds_parser_expect(p, DS_TOK_STRING, "with the name of the hardware").name;
    }
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &node.attrs, &node.n_attrs);
    return node;
}

/* In `device a[2], b[2] : "V100"` the type is that of both. */
static void share_type(ds_parser *p, ds_topology *topology, uint32_t first) {
    const char *type_name = NULL;
    for (uint32_t k = topology->nodes.n; k-- > first;) {
        ds_node_decl *node = &topology->nodes.at[k];
        if (node->type_name)
            type_name = node->type_name;
        else
            node->type_name = type_name;
        if (node->kind == DS_NODE_INSTANCE && !node->type_name)
            ds_parser_fail(p, DS_ERR_SYNTAX, node->loc,
                           "a node says which topology it is: node %s : @name", node->name);
    }
}

static void parse_nodes(ds_parser *p, ds_topology *topology, ds_node_kind kind, ds_trivia *trivia) {
    uint32_t first = topology->nodes.n;
    ds_parser_advance(p);
    do {
        ds_node_decl node = parse_node(p, kind);
        node.group = first;
        DS_PUSH(p->arena, &topology->nodes, node);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_end(p, trivia);
    share_type(p, topology, first);
    topology->nodes.at[first].trivia = *trivia;
    DS_PUSH(p->arena, &topology->items, ((ds_topology_item){false, first}));
}

static ds_quantity parse_quantity(ds_parser *p, const char *what) {
    ds_quantity q = {.value = ds_parse_expr(p)};
    if (!ds_parser_at_word(p, "for")) q.unit = ds_parse_unit(p);
    if (q.unit == DS_UNIT_NONE) ds_parser_expected(p, what);
    return q;
}

/* What stands behind a link or a degrade: for i in 0..8, j in 0..4 where i < j */
typedef struct link_loops {
    ds_binder *at;
    uint32_t n;
    ds_expr where;
} link_loops;

static link_loops parse_loops(ds_parser *p) {
    DS_VEC(ds_binder) loops = {0};
    ds_expr where = DS_NO_EXPR;
    if (ds_parser_accept_word(p, "for")) {
        do {
            ds_token name = ds_parser_expect_new_name(p, "for the link's index");
            ds_binder loop = {.name = name.name, .loc = name.loc};
            ds_parser_expect_word(p, "in", "after the link's index");
            ds_parse_range(p, &loop.lo, &loop.hi);
            ds_parser_push_index(p, name.name, name.loc);
            DS_PUSH(p->arena, &loops, loop);
        } while (ds_parser_accept(p, DS_TOK_COMMA));
        if (ds_parser_accept_word(p, "where")) where = ds_parse_expr(p);
    }
    return (link_loops){loops.at, loops.n, where};
}

/* The paths were read before the `for`: now it is known which of their names are indices. */
static void close_open_names(ds_parser *p) {
    for (uint32_t k = 0; k < p->open_names.n; k++) {
        ds_open_name open = p->open_names.at[k];
        bool is_index = ds_parser_has_index(p, open.name);
        if (is_index && open.is_param)
            ds_parser_fail(p, DS_ERR_NAME, open.loc,
                           "'%s' is a param and an index of this link; rename the index",
                           open.name);
        else if (!is_index && !open.is_param)
            ds_parser_fail(p, DS_ERR_NAME, open.loc,
                           "unknown name '%s': neither an index of this link's `for` nor a param",
                           open.name);
    }
    p->open_names.n = 0;
}

/* link n[i].nic -- leaf[i / 8] : 25 GB/s, 2 us {attrs} for i in 0..128 where i < 64 */
static ds_link_decl parse_link(ds_parser *p) {
    ds_link_decl link = {.loc = p->tok.loc};
    uint32_t mark = p->indices.n;
    ds_parser_advance(p);
    p->in_link = true;
    ds_parse_steps(p, &link.a, &link.n_a);
    link.duplex = ds_parser_at(p, DS_TOK_DASHDASH);
    if (!link.duplex && !ds_parser_at(p, DS_TOK_ARROW))
        ds_parser_expected(p, "'--' (both ways) or '->' (one way) between the ends of the link");
    ds_parser_advance(p);
    ds_parse_steps(p, &link.b, &link.n_b);
    ds_parser_expect(p, DS_TOK_COLON, "before the link's bandwidth");
    link.bandwidth = parse_quantity(p, "a unit like GB/s after the bandwidth");
    ds_parser_expect(p, DS_TOK_COMMA, "before the link's latency");
    link.latency = parse_quantity(p, "a unit like us after the latency");
    p->in_link = false;
    if (ds_parser_at(p, DS_TOK_LBRACE)) ds_parse_attrs(p, &link.attrs, &link.n_attrs);
    link_loops loops = parse_loops(p);
    link.loops = loops.at;
    link.n_loops = loops.n;
    link.where = loops.where;
    close_open_names(p);
    ds_parser_pop_indices(p, mark);
    return link;
}

static void parse_topology_item(ds_parser *p, ds_topology *topology) {
    ds_trivia trivia;
    ds_parser_begin(p, &trivia, topology->items.n == 0);
    for (uint32_t k = 0; k < N_NODE_KINDS; k++)
        if (ds_parser_at_word(p, node_kinds[k].word)) {
            parse_nodes(p, topology, node_kinds[k].kind, &trivia);
            return;
        }
    if (!ds_parser_at_word(p, "link")) {
        ds_parser_expected(p, "device, switch, nic, host, node or link");
        return;
    }
    ds_link_decl link = parse_link(p);
    ds_parser_end(p, &trivia);
    link.trivia = trivia;
    DS_PUSH(p->arena, &topology->links, link);
    DS_PUSH(p->arena, &topology->items, ((ds_topology_item){true, topology->links.n - 1}));
}

void ds_parse_topology(ds_parser *p) {
    ds_module *module = p->module;
    ds_topology *topology = DS_NEW(p->arena, ds_topology);
    topology->module = module;
    ds_parser_begin(p, &topology->trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for the topology");
    topology->name = name.name;
    topology->loc = name.loc;
    ds_parser_expect(p, DS_TOK_LBRACE, "before the nodes and links");
    ds_parser_opening(p, &topology->trivia);
    while (ds_parser_more(p, DS_TOK_RBRACE)) parse_topology_item(p, topology);
    ds_parser_dangling(p, &topology->dangling, topology->items.n == 0);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the nodes and links");
    ds_parser_end(p, &topology->trivia);
    DS_PUSH(p->arena, &module->topologies, topology);
    add_item(p, DS_ITEM_TOPOLOGY, module->topologies.n - 1);
}

/* ---- degrade ---- */

/* compute = 0.8, memory = 0.9 */
static void parse_factors(ds_parser *p, ds_degrade *degrade) {
    DS_VEC(ds_attr) list = {0};
    do {
        ds_token name =
            ds_parser_expect(p, DS_TOK_NAME, "of a share: compute, memory, bandwidth or latency");
        ds_attr factor = {.name = name.name, .loc = name.loc, .kind = DS_ATTR_EXPR};
        ds_parser_expect(p, DS_TOK_ASSIGN, "before the factor");
        factor.expr = ds_parse_expr(p);
        for (uint32_t k = 0; k < list.n; k++)
            if (list.at[k].name == factor.name)
                ds_parser_fail(p, DS_ERR_NAME, factor.loc, "'%.80s' is given twice", factor.name);
        DS_PUSH(p->arena, &list, factor);
    } while (ds_parser_accept(p, DS_TOK_COMMA));
    degrade->factors = list.at;
    degrade->n_factors = list.n;
}

ds_degrade ds_parse_degradation(ds_parser *p) {
    ds_degrade degrade = {.loc = p->tok.loc};
    uint32_t mark = p->indices.n;
    p->in_link = true;
    ds_parse_steps(p, &degrade.a, &degrade.n_a);
    degrade.duplex = ds_parser_at(p, DS_TOK_DASHDASH);
    if (degrade.duplex || ds_parser_at(p, DS_TOK_ARROW)) {
        ds_parser_advance(p);
        ds_parse_steps(p, &degrade.b, &degrade.n_b);
    }
    parse_factors(p, &degrade);
    p->in_link = false;
    link_loops loops = parse_loops(p);
    degrade.loops = loops.at;
    degrade.n_loops = loops.n;
    degrade.where = loops.where;
    close_open_names(p);
    ds_parser_pop_indices(p, mark);
    return degrade;
}

void ds_parse_degrade(ds_parser *p) {
    ds_trivia trivia;
    ds_parser_begin(p, &trivia, false);
    ds_loc loc = p->tok.loc;
    ds_parser_advance(p);
    ds_degrade degrade = ds_parse_degradation(p);
    ds_parser_end(p, &trivia);
    degrade.trivia = trivia;
    degrade.loc = loc;
    DS_PUSH(p->arena, &p->module->degrades, degrade);
    add_item(p, DS_ITEM_DEGRADE, p->module->degrades.n - 1);
}

/* ---- mesh ---- */

static void parse_axes(ds_parser *p, ds_mesh *mesh) {
    DS_VEC(ds_mesh_axis) axes = {0};
    ds_parser_expect(p, DS_TOK_LBRACKET, "before the mesh's axes");
    while (ds_parser_more(p, DS_TOK_RBRACKET)) {
        ds_token name = ds_parser_expect(p, DS_TOK_NAME, "of a mesh axis");
        if (axes.n == DS_MAX_MESH_AXES)
            ds_parser_fail(p, DS_ERR_LIMIT, name.loc, "a mesh has at most %d axes",
                           DS_MAX_MESH_AXES);
        ds_mesh_axis axis = {.name = name.name, .loc = name.loc};
        ds_parser_expect(p, DS_TOK_ASSIGN, "before the axis's size");
        axis.size = ds_parse_expr(p);
        DS_PUSH(p->arena, &axes, axis);
        if (!ds_parser_accept(p, DS_TOK_COMMA)) break;
    }
    ds_parser_expect(p, DS_TOK_RBRACKET, "after the mesh's axes");
    mesh->axes = axes.at;
    mesh->n_axes = axes.n;
}

static void parse_order(ds_parser *p, ds_mesh *mesh) {
    DS_VEC(ds_expr) order = {0};
    if (!ds_parser_accept_word(p, "order")) return;
    ds_parser_expect(p, DS_TOK_LPAREN, "before the devices' order");
    do DS_PUSH(p->arena, &order, ds_parse_expr(p));
    while (ds_parser_accept(p, DS_TOK_COMMA));
    ds_parser_expect(p, DS_TOK_RPAREN, "after the devices' order");
    mesh->order = order.at;
    mesh->n_order = order.n;
}

static void parse_mesh_body(ds_parser *p, ds_mesh *mesh) {
    if (ds_parser_accept_word(p, "view")) {
        mesh->kind = DS_MESH_VIEW;
        mesh->base = ds_parse_qualified(p, "of the mesh to view");
        parse_axes(p, mesh);
    } else if (ds_parser_accept_word(p, "pick")) {
        mesh->kind = DS_MESH_PICK;
        ds_parse_range(p, &mesh->pick_lo, &mesh->pick_hi);
        ds_parser_expect_word(p, "of", "after the range of devices");
        mesh->base = ds_parse_qualified(p, "of the mesh to pick from");
        parse_axes(p, mesh);
    } else if (ds_parser_at(p, DS_TOK_LBRACKET)) {
        mesh->kind = DS_MESH_ON;
        parse_axes(p, mesh);
        ds_parser_expect_word(p, "on", "and a topology after the mesh's axes");
        mesh->base = ds_parse_qualified(p, "of a topology");
        parse_order(p, mesh);
    } else {
        ds_parser_expected(p, "`[axis = size, …] on @topology`, `view` or `pick`");
    }
}

void ds_parse_mesh(ds_parser *p) {
    ds_module *module = p->module;
    ds_mesh *mesh = DS_NEW(p->arena, ds_mesh);
    mesh->module = module;
    ds_parser_begin(p, &mesh->trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for the mesh");
    mesh->name = name.name;
    mesh->loc = name.loc;
    ds_parser_expect(p, DS_TOK_ASSIGN, "after the mesh's name");
    parse_mesh_body(p, mesh);
    ds_parser_end(p, &mesh->trivia);
    DS_PUSH(p->arena, &module->meshes, mesh);
    add_item(p, DS_ITEM_MESH, module->meshes.n - 1);
}

/* ---- schedule ---- */

/* Reads F0.1: the lexer gives the name F0, a dot and an integer. */
static ds_schedule_item parse_schedule_item(ds_parser *p) {
    ds_schedule_item item = {0};
    ds_token token = p->tok;
    bool fits = token.kind == DS_TOK_NAME && strchr("FBWR", token.name[0]) && token.name[1];
    for (const char *at = fits ? token.name + 1 : ""; *at && fits; at++) {
        fits = *at >= '0' && *at <= '9' && item.chunk <= (INT32_MAX - 9) / 10;
        if (fits) item.chunk = item.chunk * 10 + (*at - '0');
    }
    if (!fits) {
        ds_parser_expected(p, "a schedule item like F0.1 (F, B, W or R, chunk, microbatch)");
        return item;
    }
    item.kind = token.name[0];
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_DOT, "between chunk and microbatch");
    item.microbatch = ds_parser_expect_int(p, "as the microbatch");
    item.with_next = ds_parser_accept(p, DS_TOK_AMP);
    return item;
}

static void parse_schedule_rank(ds_parser *p, ds_schedule *schedule, ds_schedule_rank *rank) {
    DS_VEC(ds_schedule_item) items = {0};
    bool bare = !schedule->n_ranks && !schedule->n_place && !schedule->chunks;
    ds_parser_begin(p, &rank->trivia, bare);
    rank->loc = p->tok.loc;
    ds_parser_advance(p);
    rank->rank = ds_parser_expect_int(p, "as the rank's number");
    ds_parser_expect(p, DS_TOK_COLON, "before the rank's items");
    bool more = ds_parser_at(p, DS_TOK_NAME) && !ds_parser_at_word(p, "rank");
    while (more) {
        ds_schedule_item item = parse_schedule_item(p);
        DS_PUSH(p->arena, &items, item);
        more = item.with_next || (ds_parser_at(p, DS_TOK_NAME) && !ds_parser_at_word(p, "rank"));
        more = more && !p->status;
    }
    ds_parser_accept(p, DS_TOK_SEMI);
    ds_parser_end(p, &rank->trivia);
    rank->items = items.at;
    rank->n_items = items.n;
}

typedef DS_VEC(int64_t) integers;

/* place 0->0 1->1 2->1 */
static void parse_place_list(ds_parser *p, integers *chunks, integers *stages) {
    do {
        int64_t chunk = ds_parser_expect_int(p, "as a chunk");
        ds_parser_expect(p, DS_TOK_ARROW, "between chunk and stage");
        int64_t stage = ds_parser_expect_int(p, "as a stage");
        DS_PUSH(p->arena, chunks, chunk);
        DS_PUSH(p->arena, stages, stage);
        ds_parser_accept(p, DS_TOK_COMMA);
    } while (ds_parser_at(p, DS_TOK_INT));
    ds_parser_accept(p, DS_TOK_SEMI);
}

static void parse_chunks(ds_parser *p, ds_schedule *schedule) {
    schedule->chunks = ds_parser_expect_int(p, "as the number of chunks");
    if (!p->status && schedule->chunks == 0)
        ds_parser_fail(p, DS_ERR_VALUE, p->tok.loc, "a schedule has at least one chunk");
    ds_parser_accept(p, DS_TOK_SEMI);
}

static void parse_schedule_body(ds_parser *p, ds_schedule *schedule) {
    DS_VEC(ds_schedule_rank) ranks = {0};
    integers chunks = {0}, stages = {0};
    while (ds_parser_more(p, DS_TOK_RBRACE)) {
        if (ds_parser_accept_word(p, "chunks")) {
            parse_chunks(p, schedule);
        } else if (ds_parser_accept_word(p, "place")) {
            parse_place_list(p, &chunks, &stages);
            schedule->n_place = chunks.n;
        } else if (ds_parser_at_word(p, "rank")) {
            ds_schedule_rank rank = {0};
            parse_schedule_rank(p, schedule, &rank);
            DS_PUSH(p->arena, &ranks, rank);
            schedule->n_ranks = ranks.n;
        } else {
            ds_parser_expected(p, "chunks, place, rank or '}' in the schedule");
        }
    }
    schedule->ranks = ranks.at;
    schedule->place_chunk = chunks.at;
    schedule->place_stage = stages.at;
}

void ds_parse_schedule(ds_parser *p) {
    ds_module *module = p->module;
    ds_schedule *schedule = DS_NEW(p->arena, ds_schedule);
    ds_parser_begin(p, &schedule->trivia, false);
    ds_parser_advance(p);
    ds_token name = ds_parser_expect(p, DS_TOK_SYMBOL, "for the schedule");
    schedule->name = name.name;
    schedule->loc = name.loc;
    ds_parser_expect(p, DS_TOK_LBRACE, "before the schedule's body");
    ds_parser_opening(p, &schedule->trivia);
    parse_schedule_body(p, schedule);
    bool empty = !schedule->n_ranks && !schedule->n_place && !schedule->chunks;
    ds_parser_dangling(p, &schedule->dangling, empty);
    ds_parser_expect(p, DS_TOK_RBRACE, "after the schedule's body");
    ds_parser_end(p, &schedule->trivia);
    DS_PUSH(p->arena, &module->schedules, schedule);
    add_item(p, DS_ITEM_SCHEDULE, module->schedules.n - 1);
}

/* ---- scenario ---- */

void ds_parse_scenario(ds_parser *p) {
    ds_scenario scenario = {0};
    ds_parser_begin(p, &scenario.trivia, false);
    scenario.loc = p->tok.loc;
    ds_parser_advance(p);
    ds_parser_expect(p, DS_TOK_LBRACE, "before the scenario's entries");
    ds_parser_opening(p, &scenario.trivia);
    ds_parse_entries(p, &scenario.entries, &scenario.n_entries, &scenario.dangling);
    ds_parser_end(p, &scenario.trivia);
    DS_PUSH(p->arena, &p->module->scenarios, scenario);
    add_item(p, DS_ITEM_SCENARIO, p->module->scenarios.n - 1);
}
