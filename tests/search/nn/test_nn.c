/* The tape: gradients against differences, exp against the library's, Adam by hand. */
#include "search/nn/nn.h"

#include <criterion/criterion.h>
#include <math.h>

Test(nn, exp_is_the_librarys) {
    for (double x = -690; x < 690; x += 0.37)
        cr_assert_float_eq(ds_nn_exp(x) / exp(x), 1, 4e-15, "exp(%g)", x);
    cr_assert_eq(ds_nn_exp(0), 1);
    cr_assert_eq(ds_nn_exp(-1e9), 0);
}

/* ---- gradients ---- */

static const float input[] = {0.3F, -1.2F, 0.8F, 0.1F, -0.4F, 0.9F, 1.5F, -0.7F};
static const uint32_t row[] = {3, 0, 0, 2, 1, 1}, segment[] = {0, 1, 1, 0, 1, 2};
static const double target[] = {0.2, 0.5, 0.3};

typedef struct small_net {
    ds_nn_params params;
    ds_nn_param in, bias, score, out;
} small_net;

static small_net new_net(void) {
    small_net net = {0};
    ds_rng rng = {7};
    net.in = ds_nn_param_new(&net.params, 2, 4, &rng);
    net.bias = ds_nn_param_new(&net.params, 1, 4, &rng);
    net.score = ds_nn_param_new(&net.params, 4, 2, &rng);
    net.out = ds_nn_param_new(&net.params, 6, 1, &rng);
    return net;
}

/* Every operation of the tape once: rows are gathered, scored by two heads, weighed and summed. */
static double loss_of(small_net *net, bool learns) {
    ds_arena arena;
    ds_arena_init(&arena);
    ds_nn_tape *t = ds_nn_tape_new(&net->params, &arena);
    ds_nn_var x = ds_nn_input(t, 4, 2, input);
    ds_nn_var h = ds_nn_tanh(
        t, ds_nn_add(t, ds_nn_matmul(t, x, ds_nn_of(t, net->in)), ds_nn_of(t, net->bias)));
    ds_nn_var sent = ds_nn_gather(t, h, row, 6);
    ds_nn_var score = ds_nn_leaky(t, ds_nn_matmul(t, sent, ds_nn_of(t, net->score)));
    ds_nn_var alpha = ds_nn_softmax(t, score, segment, 3);
    ds_nn_var got = ds_nn_scale(t, ds_nn_sum(t, ds_nn_weigh(t, sent, alpha), segment, 3), 1.5F);
    ds_nn_var own = ds_nn_input(t, 3, 2, input + 2);
    ds_nn_var logit = ds_nn_matmul(t, ds_nn_concat(t, got, own), ds_nn_of(t, net->out));
    static const uint32_t all[3] = {0};
    double loss = ds_nn_cross_entropy(t, ds_nn_softmax(t, logit, all, 1), target);
    if (learns) ds_nn_backward(t);
    ds_arena_deinit(&arena);
    return loss;
}

/* f32: differences of 2e-3 are true to about 1e-3. */
Test(nn, gradients_are_differences) {
    small_net net = new_net();
    loss_of(&net, true);
    double most = 0;
    for (uint32_t i = 0; i < net.params.n; i++) {
        float kept = net.params.value[i], step = 1e-2F;
        net.params.value[i] = kept + step;
        double above = loss_of(&net, false);
        net.params.value[i] = kept - step;
        double below = loss_of(&net, false);
        net.params.value[i] = kept;
        double difference = (above - below) / (2 * (double)step);
        cr_expect_float_eq((double)net.params.gradient[i], difference, 2e-4,
                           "parameter %u: %g, not %g", i, (double)net.params.gradient[i],
                           difference);
        most = fmax(most, fabs(difference));
    }
    cr_expect_gt(most, 0.05);
    ds_nn_params_deinit(&net.params);
}

/* The first step of Adam is the rate times the sign; gradients of norm 5 are cut to norm 1, which
 * changes nothing in the first step. The second step by hand: m = 0.9 · 0.1 g + 0.1 · 0 over
 * 1 - 0.81, v = 0.999 · 0.001 g² over 1 - 0.998001: rate · 0.473684 / sqrt(0.499750). */
Test(nn, adam_by_hand) {
    ds_nn_params p = {0};
    ds_nn_param_new(&p, 1, 2, NULL);
    p.gradient[0] = 3;
    p.gradient[1] = -4;
    ds_nn_adam(&p, 0.01, 1);
    cr_expect_float_eq((double)p.value[0], -0.01, 1e-8);
    cr_expect_float_eq((double)p.value[1], 0.01, 1e-8);
    cr_expect_float_eq((double)p.gradient[0], 0, 0);
    ds_nn_adam(&p, 0.01, 1);
    cr_expect_float_eq((double)p.value[0], -0.01 - 0.01 * 0.4736842 / sqrt(0.4997499), 1e-7);
    ds_nn_params_deinit(&p);
}
