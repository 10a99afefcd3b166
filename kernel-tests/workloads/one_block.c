/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Loops of one block, whose branch is found in neighbouring entries of a branch stack: `one_block ROUNDS`. The inner loops
 * go round 1 to 40 times, so that stacks hold parts of one of them as well as several.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define noinline __attribute__((noinline))

/* A division and a locked addition. */
static noinline uint64_t divided(uint64_t x, unsigned long rounds)
{
	static uint64_t shared;

	__asm__ volatile("1: movq %[x], %%rax\n"
			 "xorl %%edx, %%edx\n"
			 "divq %[by]\n"
			 "lock addq %%rax, %[shared]\n"
			 "addq $3, %[x]\n"
			 "subq $1, %[rounds]\n"
			 "jnz 1b\n"
			 : [x] "+r"(x), [rounds] "+r"(rounds), [shared] "+m"(shared)
			 : [by] "r"(7ul)
			 : "rax", "rdx", "cc");
	return x ^ shared;
}

/* Arithmetic of doubles. */
static noinline double summed(double x, unsigned long rounds)
{
	double sum = 0;

	__asm__ volatile("1: movapd %[x], %%xmm7\n"
			 "mulsd %%xmm7, %%xmm7\n"
			 "addsd %%xmm7, %[sum]\n"
			 "addsd %[step], %[x]\n"
			 "subq $1, %[rounds]\n"
			 "jnz 1b\n"
			 : [x] "+x"(x), [sum] "+x"(sum), [rounds] "+r"(rounds)
			 : [step] "x"(0.25)
			 : "xmm7", "cc");
	return sum;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000;
	uint64_t seed = 88172645463325252ull, x = 1;
	double sum = 0;

	while (rounds--) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		x = divided(x, 1 + seed % 40);
		if (seed >> 32 & 1)
			sum += summed((double)(x & 0xff), 1 + (seed >> 8) % 9);
	}
	printf("%llu %f\n", (unsigned long long)x, sum);
}
