/* Tokens to experts and back, as DeepEP's kernels send: a token goes once to each device with an
 * expert of the token's, and over the network once to each other node; the device there of the
 * sender's rank passes the token on.
 *
 * Experts are drawn without repetition, all alike. Of E experts, k are a token's, and a part has
 * s E: the part has none of the k with the product of ((1 − s) E − i)/(E − i), i < k. Where a token
 * is limited to g of N nodes, those are drawn first, all alike, and experts among theirs (DeepSeek-AI
 * 2024, arXiv:2412.19437, section 2.1.2, node-limited routing).
 *
 * `blocks` multiprocessors copy, and links carry; the slowest of three holds the exchange up:
 *
 *     t = launch + node (nodes, if several)
 *         + tokens max(wired bytes/(e_link L),
 *                      (copies + own + relay (1 + crossed))(copy + bytes/r)/blocks,
 *                      crossed bytes/(e_net N))
 *
 * `own` counts the passes over a token on its own device, in copies; `relay`, if nodes are several,
 * those of each node's device that forwards. Source of the form: DeepEP,
 * README.md and csrc/kernels (deepseek-ai/DeepEP): kernels are channels of multiprocessors, nodes
 * are crossed once and forwarded over NVLink. */
#ifndef DS_COST_EXCHANGE_H
#define DS_COST_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

struct ds_profiles;

/* What an all_to_all of experts' buffers carries. */
typedef struct ds_exchange {
    int64_t experts; /* 0: so many that drawing one changes nothing */
    int64_t top;     /* experts of a token */
    int64_t limit;   /* nodes of a token, at most; 0: all */
    double filled;   /* tokens, by rows of the buffers */
    double bytes;    /* of a token */
    bool back;       /* from the experts */
} ds_exchange;

/* Equal for equal exchanges; 0 for NULL. */
uint64_t ds_exchange_hash(const ds_exchange *exchange);
/* The part of all tokens that has an expert in one of `parts` equal parts, the nodes or equal parts
 * of nodes. O(top). */
double ds_exchange_reach(const ds_exchange *exchange, double parts, double nodes);
/* The tokens of a member whose buffers have so many bytes. */
double ds_exchange_tokens(const ds_exchange *exchange, double bytes);

/* What a device sends of one of its tokens. */
typedef struct ds_sending {
    double tokens, bytes; /* of a device; of a copy */
    double copies, wired; /* of a token; those over links inside of nodes */
    double crossed;       /* other nodes that a token goes to */
    double n_nodes;       /* 0: one */
    double blocks, link_bytes_per_s, net_bytes_per_s;
} ds_sending;

/* Over so many devices of so many nodes; without tokens, blocks and the links' rates. */
void ds_sending_of(const ds_exchange *exchange, double devices, double nodes, ds_sending *out);

typedef struct ds_sending_fit {
    double launch_s, node_s, e_link, e_net, copy_s, copy_bytes_per_s, own, relay;
} ds_sending_fit;

/* The constants of efficiency.csv, `send_KERNEL_OP_link` and so on (FORMATS.md); OP is dispatch or
 * combine. False: the profile has no fit of the kernel. O(fits). */
bool ds_sending_fit_of(const struct ds_profiles *profiles, uint32_t profile, const char *kernel,
                       const char *op, bool between_nodes, ds_sending_fit *out);
double ds_sending_seconds(const ds_sending_fit *fit, const ds_sending *sending);

#define DS_SENDING_BLOCKS 20 /* DeepEP's Buffer.num_sms, and Megatron's --moe-deepep-num-sms */

#endif
