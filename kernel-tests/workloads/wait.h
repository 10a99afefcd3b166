/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A pause between two rounds of a loop that no clock can be in step with. */
#ifndef HBBP_WAIT_H
#define HBBP_WAIT_H

/* Goes round up to 8191 times, and returns the next state of chance (Knuth's MMIX generator). */
static inline __attribute__((always_inline)) unsigned long wait_by_chance(unsigned long chance)
{
	chance = chance * 6364136223846793005ul + 1442695040888963407ul;
	for (unsigned long wait = chance >> 51; wait; wait--)
		__asm__ volatile("");
	return chance;
}

#endif
