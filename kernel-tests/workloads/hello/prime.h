/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The prime number search of the HBBP paper's section VIII.D: the same code as a user program (hello_u.c)
 * and as a kernel module (hello.c).
 */
#ifndef HBBP_PRIME_H
#define HBBP_PRIME_H

/* The number of primes below `limit`, by trial division. */
static inline unsigned long primes_below(unsigned long limit)
{
	unsigned long candidate, divisor, found = 0;

	for (candidate = 2; candidate < limit; candidate++) {
		for (divisor = 2; divisor * divisor <= candidate; divisor++)
			if (candidate % divisor == 0)
				break;
		if (divisor * divisor > candidate)
			found++;
	}
	return found;
}

#endif
