/* The messages of transfers in time, where the network is stepwise. */
#ifndef DS_ENGINE_STEPS_H
#define DS_ENGINE_STEPS_H

#include "sim/plan/plan.h"

typedef struct ds_steps ds_steps;

/* NULL if the plan has no messages. In the network, message s is activity n_activities + s. */
ds_steps *ds_steps_new(const ds_plan *plan, ds_net *net);
void ds_steps_free(ds_steps *steps);
/* The transfer's first messages may begin at at_ps. O(its messages). */
void ds_steps_start(ds_steps *steps, uint32_t activity, int64_t at_ps);
/* Takes one message whose latency ends at *at_ps, for the caller to wait; false if there is none.
 */
bool ds_steps_take(ds_steps *steps, uint32_t *step, int64_t *at_ps);
/* The transfer that has begun the message. */
uint32_t ds_steps_owner(const ds_steps *steps, uint32_t step);
/* Its latency is over: it loads its links, or waits for its turn. */
void ds_steps_waited(ds_steps *steps, uint32_t step, int64_t now_ps);
/* It has ended; the activity if that was its last message, else DS_NONE. */
uint32_t ds_steps_end(ds_steps *steps, uint32_t step, int64_t now_ps);

#endif
