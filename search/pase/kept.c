/* Which tensors a training step holds when its backward pass begins, and a forward pass at its
 * fullest: what memory is made of beside weights.
 *
 * A tensor is kept if a gradient that is wanted reads the tensor (`saves` in ir/ops/ops.def). A
 * kept tensor is one buffer with its views, lies as the op that makes it is split, and is counted
 * once. */
#include "search/pase/internal.h"

#include <stdlib.h>
#include <string.h>

void ds_pase__hold(ds_pase_node *node, uint32_t axes, double bytes) {
    for (uint32_t i = 0; i < DS_PASE_HELD; i++) {
        ds_pase_held *held = &node->held[i];
        bool last = i + 1 == DS_PASE_HELD;
        if (held->bytes > 0 && held->axes != axes && !last) continue;
        held->axes = held->bytes > 0 && last ? held->axes & axes : axes;
        held->bytes += bytes;
        return;
    }
}

static void hold(ds_pase_graph *graph, const ds_pase_buffer *buffer) {
    ds_pase__hold(&graph->nodes.at[buffer->node], buffer->axes, buffer->bytes);
}

uint32_t ds_pase__new_buffer(ds_pase_buffers *buffers, uint32_t node, const ds_shape *shape,
                             const int8_t *axis) {
    ds_pase_buffer buffer = {.node = node, .bytes = ds_dtype_bits(shape->dtype) / 8.0};
    for (uint32_t d = 0; d < shape->rank; d++) {
        buffer.bytes *= (double)shape->dims[d];
        if (axis[d] >= 0) buffer.axes |= 1u << axis[d];
    }
    buffer.made = buffer.read = buffers->time;
    DS_HPUSH(&buffers->all, buffer);
    return buffers->all.n - 1;
}

static bool is_wanted(const ds_pase_tensor *tensor) {
    return tensor->is_made || tensor->is_weight;
}

static void use(ds_pase_buffers *buffers, const ds_pase_tensor *tensor, bool kept) {
    if (!tensor->is_made) return;
    ds_pase_buffer *buffer = &buffers->all.at[tensor->buffer];
    buffer->read = buffers->time;
    buffer->kept |= kept;
}

void ds_pase__use_operands(ds_pase_buffers *buffers, ds_opcode code,
                           const ds_pase_tensor *const *in, uint32_t n_in,
                           const ds_pase_tensor *out) {
    const ds_op_desc *desc = ds_op_desc_of(code);
    bool kept = false;
    for (uint32_t of = 0; of < n_in; of++)
        kept |= is_wanted(in[of]) && ds_op_saves_result(desc, of, 0);
    if (out) use(buffers, out, kept);
    for (uint32_t i = 0; i < n_in; i++) {
        kept = false;
        for (uint32_t of = 0; of < n_in; of++)
            kept |= is_wanted(in[of]) && ds_op_saves_operand(desc, of, i);
        use(buffers, in[i], kept);
    }
    buffers->time++;
}

/* The time at which most bytes are alive. */
static uint32_t fullest(const ds_pase_buffers *buffers) {
    double *change = ds_xcalloc((size_t)buffers->time + 2, sizeof *change), now = 0, most = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < buffers->all.n; i++) {
        const ds_pase_buffer *b = &buffers->all.at[i];
        change[b->made] += b->bytes;
        change[b->read + 1] -= b->bytes;
    }
    for (uint32_t t = 0; t <= buffers->time; t++) {
        now += change[t];
        if (now <= most) continue;
        most = now;
        at = t;
    }
    free(change);
    return at;
}

/* Where the backward pass is fullest if the examples are split, as data parallelism does: what it
 * still reads is shared out, gradients are not. A moment within a loop counts as that before it or
 * behind it, so that all turns are alike: memory changes the same way in each. */
static void mark_fullest(ds_pase_graph *graph, const ds_train *train, bool widened) {
    double parts = graph->all_devices > 1 ? (double)graph->all_devices : 1, now = 0, most = -1;
    uint32_t at = 0; /* the node, and 1: 0 is when all gradients are there */
    for (uint32_t v = 0; v < graph->nodes.n; v++)
        for (uint32_t i = 0; i < DS_PASE_HELD; i++) now += graph->nodes.at[v].held[i].bytes / parts;
    for (uint32_t v = graph->nodes.n; v-- > 0;) {
        const ds_pase_node *node = &graph->nodes.at[v];
        double gradients = 0;
        for (uint32_t i = 0; i < node->n_in; i++)
            if (node->in_weight[i] && !node->in_reread[i])
                gradients += ds_pase__gradient_bytes(train, &node->in[i]);
        now += gradients;
        bool logits_gone = widened && gradients > 0; /* when the first ones are made */
        if (logits_gone) widened = false;
        if (now > most && !logits_gone && !strchr(node->path, '[')) {
            most = now;
            at = v + 1;
        }
        for (uint32_t i = 0; i < DS_PASE_HELD; i++) now -= node->held[i].bytes / parts;
    }
    if (now > most) at = 0;
    for (uint32_t v = 0; v < graph->nodes.n; v++) {
        graph->nodes.at[v].before = v + 1 <= at;
        graph->nodes.at[v].behind = v + 1 >= at;
    }
}

double ds_pase__gradient_bytes(const ds_train *train, const ds_shape *weight) {
    ds_dtype dtype = train->grad_dtype == DS_DTYPE_COUNT ? weight->dtype : train->grad_dtype;
    double bytes = ds_dtype_bits(dtype) / 8.0;
    for (uint32_t d = 0; d < weight->rank; d++) bytes *= (double)weight->dims[d];
    return bytes;
}

void ds_pase__hold_buffers(ds_pase_graph *graph, const ds_pase_buffers *buffers,
                           const ds_train *train, bool widened) {
    uint32_t at = fullest(buffers);
    for (uint32_t i = 0; i < buffers->all.n; i++) {
        const ds_pase_buffer *b = &buffers->all.at[i];
        if (train->on ? b->kept : b->made <= at && at <= b->read) hold(graph, b);
    }
    mark_fullest(graph, train, widened);
}
