/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Nested loops with known trip counts, the same code as a user program (nested_u.c) and as a kernel module (nested.c).
 * They are made after the description of OptiWISE's tests and its Figure 1 (Guo et al., CGO 2024); a statement of
 * assembly in each body keeps compilers from changing them.
 */
#ifndef HBBP_NESTS_H
#define HBBP_NESTS_H

#define kept __attribute__((__noinline__, __noclone__))
#define ADD(x) __asm__ volatile("add $3, %0" : "+r"(x))
#define MULTIPLY(x) __asm__ volatile("imul $3, %0, %0" : "+r"(x))

unsigned long nested1(unsigned long rounds);
unsigned long nested2(unsigned long rounds);
unsigned long nested3(unsigned long rounds);
unsigned long figure1(unsigned long rounds);
unsigned long recursive(unsigned long depth);
unsigned long all_nests(unsigned long rounds);

/* Two levels: 20 rounds inside. */
kept unsigned long nested1(unsigned long rounds)
{
	unsigned long x = 1, a, b;

	for (a = 0; a < rounds; a++) {
		ADD(x);
		for (b = 0; b < 20; b++)
			MULTIPLY(x);
	}
	return x;
}

/* Two loops in one, of 17 and of 12 rounds. */
kept unsigned long nested2(unsigned long rounds)
{
	unsigned long x = 1, a, b;

	for (a = 0; a < rounds; a++) {
		for (b = 0; b < 17; b++)
			ADD(x);
		for (b = 0; b < 12; b++) {
			MULTIPLY(x);
			ADD(x);
		}
	}
	return x;
}

/* Three levels: 10 rounds of 11. */
kept unsigned long nested3(unsigned long rounds)
{
	unsigned long x = 1, a, b, c;

	for (a = 0; a < rounds; a++) {
		ADD(x);
		for (b = 0; b < 10; b++) {
			MULTIPLY(x);
			for (c = 0; c < 11; c++)
				ADD(x);
		}
	}
	return x;
}

/* The paper's Figure 1: two loops of one header, 16 rounds inside, and a division in place of the load that misses. */
kept unsigned long figure1(unsigned long rounds)
{
	unsigned long x = 1;

	__asm__ volatile("mov $16, %%r8d\n\tmov $1, %%r9d\n\t"
			 "1: sub $0x2770d4ee, %0\n\txor $0x7aa3411f, %0\n\tsub $1, %%r8d\n\tjne 1b\n\t"
			 "xor %%edx, %%edx\n\tmov $1, %%eax\n\tdiv %%r9\n\t"
			 "mov $16, %%r8d\n\tsub $1, %1\n\tjne 1b\n\t"
			 : "+r"(x), "+r"(rounds)::"rax", "rdx", "r8", "r9", "cc");
	return x;
}

/* Calls itself down to 0, with a loop of 8 rounds on each level. */
kept unsigned long recursive(unsigned long depth)
{
	unsigned long x = depth, b;

	for (b = 0; b < 8; b++)
		MULTIPLY(x);
	if (depth)
		x += recursive(depth - 1);
	__asm__ volatile("" : "+r"(x));
	return x;
}

kept unsigned long all_nests(unsigned long rounds)
{
	unsigned long x = nested1(rounds) + nested2(rounds) + nested3(rounds) + figure1(rounds), a;

	for (a = 0; a < rounds / 10; a++)
		x += recursive(9);
	return x;
}

#endif
