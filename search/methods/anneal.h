/* Simulated annealing and Markov chain Monte Carlo (search/methods/anneal.c). */
#ifndef DS_SEARCH_METHODS_ANNEAL_H
#define DS_SEARCH_METHODS_ANNEAL_H

#include "search/methods/method.h"

/* 16 chains of candidates, by the first objective. A step draws a dimension and another value for
 * that dimension; later dimensions keep their values where conditions allow. A better candidate is
 * taken, a worse candidate with probability exp(−(score − present score) / (T · scale)), where
 * scale is the first score of the chain.
 *   anneal  T falls from 0.5 to 0.001, by the same factor each step, over `n` candidates, as in
 *           gsl_siman_solve (GSL manual, "Simulated Annealing"), for results that come a round at a
 *           time
 *   mcmc    T = 0.05 throughout: FlexFlow's rule min(1, exp(β (cost − cost*))) (Jia, Zaharia,
 *           Aiken, MLSys 2019, arXiv:1807.05358, section 6), which ends when half of the search has
 *           brought nothing. assumed: β = 20 / scale, since the paper gives none
 * All draws follow from `seed`. `n`: the number of candidates to come. */
ds_method *ds_anneal_new(ds_space *space, uint64_t seed, bool mcmc, uint64_t n);

#endif
