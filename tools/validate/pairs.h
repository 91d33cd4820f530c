/* Pairs of published steps that differ in one setting: what the setting gained, measured and
 * predicted. A ratio of two steps of one cluster has none of the errors that both share. */
#ifndef DS_VALIDATE_PAIRS_H
#define DS_VALIDATE_PAIRS_H

#include "tools/validate/predict.h"

typedef struct val_pair {
    const val_prediction *from, *to; /* without and with the setting */
    const char *change;              /* a word of the table in pairs.c */
    double measured, predicted;      /* what throughput gains, in percent */
    bool is_within;                  /* is the predicted gain within a third of the measured one? */
} val_pair;

/* Of all predicted rows, in their order; *out is the caller's to free, before the rows. O(n²). */
uint32_t val_pairs_of(const val_prediction *rows, uint32_t n, bool zero_shot, val_pair **out);

#endif
