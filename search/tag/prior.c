/* The two networks: an MLP of one action, and a graph attention network before the same decoder. */
#include "search/tag/view.h"

#include <stdlib.h>

enum { WIDTH = 32, HEADS = 4, LAYERS = 3, MLP_WIDTH = 64, EDGE_TYPES = 5 };
enum { N_MACHINE_SEEN = DS_TAG_MACHINE_WIDTH + DS_TAG_PLACE_WIDTH };
/* The group, the way; means over machines taken and left; shares of machines and GPUs taken. */
enum { MLP_SEEN = DS_TAG_GROUP_WIDTH + DS_TAG_N_WAYS + 2 * N_MACHINE_SEEN + 2 };

typedef struct dense {
    ds_nn_param weight, bias;
} dense;

/* Messages of one type of edge. */
typedef struct attention {
    ds_nn_param message, edge;   /* of the sender, of the edge: WIDTH columns each */
    ds_nn_param reads, receives; /* attention of a head: from the message, from the receiver */
} attention;

typedef struct layer {
    attention types[EDGE_TYPES];
    dense group, machine;
} layer;

struct ds_tag_prior {
    ds_tag_prior_kind kind;
    ds_nn_params params;
    dense mlp[3];
    dense group_in, machine_in;
    layer layers[LAYERS];
    dense of_machine, of_action, logit;
};

/* ---- parameters ---- */

static dense new_dense(ds_nn_params *params, uint32_t rows, uint32_t cols, ds_rng *rng) {
    ds_nn_param weight = ds_nn_param_new(params, rows, cols, rng);
    return (dense){weight, ds_nn_param_new(params, 1, cols, NULL)};
}

static void init_mlp(ds_tag_prior *p, ds_rng *rng) {
    p->mlp[0] = new_dense(&p->params, MLP_SEEN, MLP_WIDTH, rng);
    p->mlp[1] = new_dense(&p->params, MLP_WIDTH, MLP_WIDTH, rng);
    p->mlp[2] = new_dense(&p->params, MLP_WIDTH, 1, rng);
}

static void init_gat(ds_tag_prior *p, ds_rng *rng) {
    static const uint32_t edge_width[EDGE_TYPES] = {1, 1, DS_TAG_PLACE_WIDTH, DS_TAG_PLACE_WIDTH,
                                                    1};
    p->group_in = new_dense(&p->params, DS_TAG_GROUP_WIDTH, WIDTH, rng);
    p->machine_in = new_dense(&p->params, DS_TAG_MACHINE_WIDTH, WIDTH, rng);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t t = 0; t < EDGE_TYPES; t++)
            p->layers[l].types[t] =
                (attention){ds_nn_param_new(&p->params, WIDTH, WIDTH, rng),
                            ds_nn_param_new(&p->params, edge_width[t], WIDTH, rng),
                            ds_nn_param_new(&p->params, WIDTH, HEADS, rng),
                            ds_nn_param_new(&p->params, WIDTH, HEADS, rng)};
        p->layers[l].group = new_dense(&p->params, WIDTH, WIDTH, rng);
        p->layers[l].machine = new_dense(&p->params, WIDTH, WIDTH, rng);
    }
    p->of_machine = new_dense(&p->params, WIDTH + DS_TAG_PLACE_WIDTH + 1, WIDTH, rng);
    p->of_action = new_dense(&p->params, 2 * WIDTH + DS_TAG_N_WAYS, WIDTH, rng);
    p->logit = new_dense(&p->params, WIDTH, 1, rng);
}

ds_tag_prior *ds_tag_prior_new(ds_tag_prior_kind kind, uint64_t seed) {
    ds_tag_prior *prior = ds_xcalloc(1, sizeof *prior);
    ds_rng rng = {seed};
    prior->kind = kind;
    if (kind == DS_TAG_MLP)
        init_mlp(prior, &rng);
    else
        init_gat(prior, &rng);
    return prior;
}

void ds_tag_prior_free(ds_tag_prior *prior) {
    if (prior == NULL) return;
    ds_nn_params_deinit(&prior->params);
    free(prior);
}

ds_nn_params *ds_tag_prior_params(ds_tag_prior *prior) {
    return &prior->params;
}

static ds_nn_var apply(ds_nn_tape *t, dense d, ds_nn_var x) {
    return ds_nn_add(t, ds_nn_matmul(t, x, ds_nn_of(t, d.weight)), ds_nn_of(t, d.bias));
}

static ds_nn_var apply_tanh(ds_nn_tape *t, dense d, ds_nn_var x) {
    return ds_nn_tanh(t, apply(t, d, x));
}

/* Does the action take the machine? */
static bool takes(const ds_tag_view *v, uint32_t action, uint32_t machine) {
    return v->actions[action].gpus & v->machine_gpus[machine];
}

/* ---- the MLP ---- */

/* What the MLP sees of one action. */
static void see_action(const ds_tag_state *s, const ds_tag_numbers *n, uint32_t action, float *to) {
    const ds_tag_view *v = s->view;
    uint32_t n_gpus[2] = {0}, n_machines[2] = {0};
    float *sums = to + DS_TAG_GROUP_WIDTH + DS_TAG_N_WAYS;
    for (uint32_t k = 0; k < DS_TAG_GROUP_WIDTH; k++)
        to[k] = n->group[(size_t)s->depth * DS_TAG_GROUP_WIDTH + k];
    to[DS_TAG_GROUP_WIDTH + v->actions[action].way] = 1;
    for (uint32_t m = 0; m < v->n_machines; m++) {
        bool is_left = !takes(v, action, m);
        const float *machine = n->machine + (size_t)m * DS_TAG_MACHINE_WIDTH;
        const float *place = n->place + ((size_t)m * v->n_groups + s->depth) * DS_TAG_PLACE_WIDTH;
        n_machines[is_left]++;
        n_gpus[is_left] += v->problem->cluster.machine[m].n_gpus;
        for (uint32_t k = 0; k < N_MACHINE_SEEN; k++)
            sums[is_left * N_MACHINE_SEEN + k] +=
                k < DS_TAG_MACHINE_WIDTH ? machine[k] : place[k - DS_TAG_MACHINE_WIDTH];
    }
    for (uint32_t k = 0; k < 2 * N_MACHINE_SEEN; k++)
        if (n_machines[k / N_MACHINE_SEEN]) sums[k] /= (float)n_machines[k / N_MACHINE_SEEN];
    to[MLP_SEEN - 2] = (float)n_machines[0] / (float)v->n_machines;
    to[MLP_SEEN - 1] = (float)n_gpus[0] / (float)(n_gpus[0] + n_gpus[1]);
}

static ds_nn_var logits_of_mlp(const ds_tag_prior *p, const ds_tag_state *s,
                               const ds_tag_numbers *n, ds_nn_tape *t, ds_arena *arena) {
    float *seen = DS_NEW_N(arena, float, (size_t)s->view->n_actions *MLP_SEEN);
    for (uint32_t a = 0; a < s->view->n_actions; a++)
        see_action(s, n, a, seen + (size_t)a * MLP_SEEN);
    ds_nn_var x = ds_nn_input(t, s->view->n_actions, MLP_SEEN, seen);
    for (int i = 0; i < 2; i++) x = apply_tanh(t, p->mlp[i], x);
    return apply(t, p->mlp[2], x);
}

/* ---- the graph attention network ---- */

typedef struct graph_state {
    ds_nn_tape *tape;
    ds_nn_var group, machine;
} graph_state;

/* Σ α (W h_from + E e) over the edges into each receiver, α the softmax of each head. */
static ds_nn_var attend(ds_nn_tape *t, const attention *a, ds_nn_var from, ds_nn_var to,
                        ds_nn_var edge, const uint32_t *sender, const uint32_t *receiver) {
    uint32_t n = ds_nn_rows(t, edge), n_to = ds_nn_rows(t, to);
    ds_nn_var sent = ds_nn_matmul(t, from, ds_nn_of(t, a->message));
    ds_nn_var message =
        ds_nn_add(t, ds_nn_gather(t, sent, sender, n), ds_nn_matmul(t, edge, ds_nn_of(t, a->edge)));
    ds_nn_var read = ds_nn_matmul(t, message, ds_nn_of(t, a->reads));
    ds_nn_var own = ds_nn_matmul(t, to, ds_nn_of(t, a->receives));
    ds_nn_var score = ds_nn_leaky(t, ds_nn_add(t, read, ds_nn_gather(t, own, receiver, n)));
    ds_nn_var alpha = ds_nn_softmax(t, score, receiver, n_to);
    return ds_nn_sum(t, ds_nn_weigh(t, message, alpha), receiver, n_to);
}

/* Tensors forwards, tensors backwards, machine → group, group → machine, machine → machine; then a
 * dense layer of the mean over types, added to what was there. */
static void pass_messages(const layer *l, const ds_tag_view *v, const ds_nn_var edge[3],
                          graph_state *g) {
    ds_nn_tape *t = g->tape;
    const ds_tag_edges *tensors = &v->tensors, *places = &v->places, *links = &v->links;
    ds_nn_var group =
        attend(t, &l->types[2], g->machine, g->group, edge[1], places->from, places->to);
    ds_nn_var machine =
        attend(t, &l->types[3], g->group, g->machine, edge[1], places->to, places->from);
    if (tensors->n) {
        group = ds_nn_add(
            t, group,
            attend(t, &l->types[0], g->group, g->group, edge[0], tensors->from, tensors->to));
        group = ds_nn_add(
            t, group,
            attend(t, &l->types[1], g->group, g->group, edge[0], tensors->to, tensors->from));
        group = ds_nn_scale(t, group, 1.0F / 3);
    }
    machine =
        ds_nn_add(t, machine,
                  attend(t, &l->types[4], g->machine, g->machine, edge[2], links->from, links->to));
    machine = ds_nn_scale(t, machine, 0.5F);
    g->group = ds_nn_add(t, g->group, apply_tanh(t, l->group, group));
    g->machine = ds_nn_add(t, g->machine, apply_tanh(t, l->machine, machine));
}

/* Rows of the decoder: an action and a machine each. */
typedef struct pairs {
    uint32_t n, *action, *machine, *group; /* group: of the action, [n_actions] */
    float *seen; /* the place's numbers, and whether the action takes it */
    float *way;  /* [n_actions][N_WAYS] */
} pairs;

static pairs pair_up(const ds_tag_state *s, const ds_tag_numbers *n, ds_arena *arena) {
    const ds_tag_view *v = s->view;
    size_t count = (size_t)v->n_actions * v->n_machines;
    pairs p = {(uint32_t)count,
               DS_NEW_N(arena, uint32_t, count),
               DS_NEW_N(arena, uint32_t, count),
               DS_NEW_N(arena, uint32_t, v->n_actions),
               DS_NEW_N(arena, float, count *(DS_TAG_PLACE_WIDTH + 1)),
               DS_NEW_N(arena, float, (size_t)v->n_actions *DS_TAG_N_WAYS)};
    for (uint32_t i = 0; i < count; i++) {
        float *to = p.seen + (size_t)i * (DS_TAG_PLACE_WIDTH + 1);
        p.action[i] = i / v->n_machines;
        p.machine[i] = i % v->n_machines;
        for (uint32_t k = 0; k < DS_TAG_PLACE_WIDTH; k++)
            to[k] =
                n->place[((size_t)p.machine[i] * v->n_groups + s->depth) * DS_TAG_PLACE_WIDTH + k];
        to[DS_TAG_PLACE_WIDTH] = takes(v, p.action[i], p.machine[i]);
    }
    for (uint32_t a = 0; a < v->n_actions; a++) {
        p.group[a] = s->depth;
        p.way[a * DS_TAG_N_WAYS + v->actions[a].way] = 1;
    }
    return p;
}

static ds_nn_var logits_of_gat(const ds_tag_prior *p, const ds_tag_state *s,
                               const ds_tag_numbers *n, ds_nn_tape *t, ds_arena *arena) {
    const ds_tag_view *v = s->view;
    ds_nn_var edge[3] = {ds_nn_input(t, v->tensors.n, 1, v->tensor),
                         ds_nn_input(t, v->places.n, DS_TAG_PLACE_WIDTH, n->place),
                         ds_nn_input(t, v->links.n, 1, v->link)};
    ds_nn_var group = ds_nn_input(t, v->n_groups, DS_TAG_GROUP_WIDTH, n->group);
    ds_nn_var machine = ds_nn_input(t, v->n_machines, DS_TAG_MACHINE_WIDTH, n->machine);
    graph_state g = {t, apply_tanh(t, p->group_in, group), apply_tanh(t, p->machine_in, machine)};
    for (uint32_t l = 0; l < LAYERS; l++) pass_messages(&p->layers[l], v, edge, &g);

    pairs q = pair_up(s, n, arena);
    ds_nn_var seen = ds_nn_input(t, q.n, DS_TAG_PLACE_WIDTH + 1, q.seen);
    ds_nn_var of_pair = ds_nn_concat(t, ds_nn_gather(t, g.machine, q.machine, q.n), seen);
    ds_nn_var mean =
        ds_nn_scale(t, ds_nn_sum(t, apply_tanh(t, p->of_machine, of_pair), q.action, v->n_actions),
                    1 / (float)v->n_machines);
    ds_nn_var own = ds_nn_gather(t, g.group, q.group, v->n_actions);
    ds_nn_var way = ds_nn_input(t, v->n_actions, DS_TAG_N_WAYS, q.way);
    ds_nn_var action = ds_nn_concat(t, ds_nn_concat(t, mean, own), way);
    return apply(t, p->logit, apply_tanh(t, p->of_action, action));
}

/* ---- both ---- */

static ds_nn_var probabilities(const ds_tag_prior *prior, const ds_tag_state *s, ds_nn_tape *t,
                               ds_arena *arena) {
    ds_tag_numbers n = ds_tag__numbers(s, arena);
    ds_nn_var logits = prior->kind == DS_TAG_MLP ? logits_of_mlp(prior, s, &n, t, arena)
                                                 : logits_of_gat(prior, s, &n, t, arena);
    uint32_t *one = DS_NEW_N(arena, uint32_t, s->view->n_actions); /* all actions: segment 0 */
    return ds_nn_softmax(t, logits, one, 1);
}

void ds_tag_prior_of(const ds_tag_prior *prior, const ds_tag_state *state, ds_arena *scratch,
                     double *p) {
    ds_nn_params params = prior->params; /* read only */
    ds_nn_tape *tape = ds_nn_tape_new(&params, scratch);
    const float *at = ds_nn_value(tape, probabilities(prior, state, tape, scratch));
    for (uint32_t a = 0; a < state->view->n_actions; a++) p[a] = (double)at[a];
}

double ds_tag_prior_learn(ds_tag_prior *prior, const ds_tag_state *state, const double *target,
                          ds_arena *scratch) {
    ds_nn_tape *tape = ds_nn_tape_new(&prior->params, scratch);
    double loss = ds_nn_cross_entropy(tape, probabilities(prior, state, tape, scratch), target);
    ds_nn_backward(tape);
    return loss;
}
