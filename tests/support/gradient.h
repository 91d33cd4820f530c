/* Backward ops against central differences of their forward op. */
#ifndef DS_TESTS_GRADIENT_H
#define DS_TESTS_GRADIENT_H

/* `args` ("%x: f64[2, 3], %dy: f64[2]") has the inputs and `dy`, of y's type; `lines` computes %y
 * and, for each of the arguments named in `wanted` ("x w"), its gradient for the upstream gradient
 * %dy, as %dx, %dw. Asserts that each element of these is the central difference of sum(y dy), to
 * 1e-6 of the largest. Inputs are those that exec generates. */
void gradient_check(const char *args, const char *lines, const char *wanted);

#endif
