/* The convolutional and recurrent models of scenarios/models: as large as published, and giving the
 * numbers that other implementations give.
 *
 * Published sizes: the table of pre-trained classification weights in torchvision's documentation
 * (columns Params, to the unit, and GFLOPS, which counts a multiply-add once and convolutions and
 * linear layers only, for one image). Its parameters leave out the running statistics of batch
 * normalisation, as the models here do. */
#include "tests/support/model.h"

#include <criterion/criterion.h>
#include <math.h>

typedef struct published {
    const char *model, *settings;
    int64_t parameters;
    double giga_multiply_adds; /* printed with two decimals */
} published;

static const published sizes[] = {
    {"resnet50", "batch=1", 25557032, 4.09},
    {"resnet101", "batch=1", 44549160, 7.80},
    {"alexnet", "batch=1", 61100840, 0.71},
    {"vgg19", "batch=1", 143667240, 19.63},
    /* Params has the auxiliary head, GFLOPS has not. */
    {"inception_v3", "batch=1", 27161264, -1},
    {"inception_v3", "batch=1 aux=0", 27161264 - 3326696, 5.71},
    /* ResNet-152, VGG-16 and VGG-11: the same files with other numbers of blocks. */
    {"resnet101", "batch=1 blocks2=8 blocks3=36", 60192808, 11.51},
    {"vgg19", "batch=1 convs3=3 convs4=3 convs5=3", 138357544, 15.47},
    {"vgg19", "batch=1 convs1=1 convs2=1 convs3=2 convs4=2 convs5=2", 132863336, 7.61},
};

Test(models_conv, published_sizes) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const published *p = &sizes[i];
        ds_model_counts counts;
        model_count(p->model, p->settings, &counts);
        cr_expect_eq(counts.parameters, p->parameters, "%s %s: %lld", p->model, p->settings,
                     (long long)counts.parameters);
        double giga = (double)counts.matmul_flop / 2e9;
        cr_expect(p->giga_multiply_adds < 0 || fabs(giga - p->giga_multiply_adds) <= 0.005,
                  "%s %s: %g G, not %g G", p->model, p->settings, giga, p->giga_multiply_adds);
    }
}

/* Convolutions 768 to 128, 1x1, and 128 to 768, 5x5, each with scale and shift, and a linear layer
 * with bias of 768 to 1,000 (torchvision's InceptionAux): 3,326,696. */
Test(models_conv, auxiliary_head) {
    ds_model_counts with, without;
    model_count("inception_v3", "aux=1", &with);
    model_count("inception_v3", "aux=0", &without);
    cr_expect_eq(with.parameters - without.parameters,
                 768 * 128 + 2 * 128 + 128 * 768 * 25 + 2 * 768 + 768 * 1000 + 1000);
    cr_expect_eq(with.weights - without.weights, 3 + 3 + 2);
}

/* Embedding and projection, and for each layer two matrices for four gates. A step costs the
 * products and, in a cell, 18 per unit (OPS.generated.md, lstm). */
Test(models_conv, rnnlm_by_formula) {
    const int64_t b = 64, s = 256, v = 100000, h = 2048, layers = 2;
    ds_model_counts counts;
    model_count("rnnlm", NULL, &counts);
    cr_expect_eq(counts.parameters, 2 * v * h + layers * 8 * h * h);
    cr_expect_eq(counts.weights, 2 + 2 * layers);
    cr_expect_eq(counts.matmul_flop, b * s * (layers * (2 * 8 * h * h + 18 * h) + 2 * h * v));
}

/* The channel counts of AlexNet's two columns taken as one, which PaSE's graph has: 96, 256, 384,
 * 384, 256 and 4096, 4096, 1024 outputs, with weights and biases. */
Test(models_conv, alexnet_of_2012) {
    ds_model_counts counts;
    model_count("alexnet", "c1=96 c2=256 c4=384 classes=1024", &counts);
    int64_t conv = 96 * (3 * 121 + 1) + 256 * (96 * 25 + 1) + 384 * (256 * 9 + 1) +
                   384 * (384 * 9 + 1) + 256 * (384 * 9 + 1);
    int64_t fc = 4096 * (9216 + 1) + 4096 * (4096 + 1) + 1024 * (4096 + 1);
    cr_expect_eq(counts.parameters, conv + fc);
}

/* ---- numbers ---- */

typedef struct known {
    const char *model, *settings;
    double loss;
    const char *head; /* the weights that make the logits */
    double classes, heads;
} known;

/* Losses that torchvision 0.14.1's modules, narrowed to these widths, and torch 1.13's LSTM give in
 * double precision, training mode, for the inputs that exec generates from seed 1. */
static const known losses[] = {
    {"resnet50", "batch=4 image=64 width=2 classes=10", 2.971588907011, "net.w_fc net.b_fc", 10, 1},
    {"resnet101", "batch=4 image=64 width=2 classes=10", 2.996899522406, "net.w_fc net.b_fc", 10,
     1},
    {"inception_v3", "batch=8 image=75 unit=1 classes=10 dropout=0.0 aux=0", 2.958477192705,
     "w_fc b_fc", 10, 1},
    {"inception_v3", "batch=4 image=299 unit=1 classes=10 dropout=0.0 aux=1", 4.198638652961,
     "w_fc b_fc aux.w_fc{0} aux.b_fc{0}", 10, 1.4},
    {"alexnet", "batch=4 image=63 width=1 hidden=16 classes=10 dropout=0.0", 2.304354369533,
     "head.w3 head.b3", 10, 1},
    {"vgg19", "batch=4 image=32 width=2 hidden=16 classes=10 dropout=0.0", 2.331441386894,
     "head.w3 head.b3", 10, 1},
    {"rnnlm", "batch=4 seq=5 vocab=50 hidden=8", 3.910012163437, "w_out", 50, 1},
};

Test(models_conv, losses_of_another_implementation) {
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        const known *k = &losses[i];
        double loss = model_loss(k->model, k->settings, NULL);
        cr_expect(fabs(loss - k->loss) <= 1e-9 * k->loss, "%s %s: %.12f, not %.12f", k->model,
                  k->settings, loss, k->loss);
    }
}

/* Logits of zero make all classes alike: -log(1/classes). The auxiliary loss counts 0.4. */
Test(models_conv, a_head_of_zeros_guesses) {
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++) {
        const known *k = &losses[i];
        double loss = model_loss(k->model, k->settings, k->head), want = k->heads * log(k->classes);
        cr_expect_float_eq(loss, want, 1e-12, "%s: %.12f, not %.12f", k->model, loss, want);
    }
}
