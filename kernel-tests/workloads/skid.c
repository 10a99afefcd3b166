/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A loop whose distribution of samples follows from the model of "Can We Trust Profiling Results?", ICS 2019,
 * section 1: a division and nine additions. `skid ROUNDS` prints the address of the loop.
 */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void model(unsigned long rounds)
{
	void *loop;
	/* rax and rdx stay small: rdx:rax = rax % 1 leaves rdx 0. */
	__asm__ volatile("lea 1f(%%rip), %0\n\t"
			 "xor %%edx, %%edx\n\tmov $1, %%eax\n\tmov $1, %%r8d\n\t"
			 "1: div %%r8\n\t"
			 "add %%r8, %%r9\n\tadd %%r8, %%r10\n\tadd %%r8, %%r11\n\t"
			 "add %%r8, %%r9\n\tadd %%r8, %%r10\n\tadd %%r8, %%r11\n\t"
			 "add %%r8, %%r9\n\tadd %%r8, %%r10\n\tadd %%r8, %%r11\n\t"
			 "dec %1\n\tjnz 1b\n\t"
			 : "=&r"(loop), "+r"(rounds)::"rax", "rdx", "r8", "r9", "r10", "r11", "cc");
	printf("%lx\n", (unsigned long)loop);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	model(strtoul(argv[1], NULL, 0));
	return 0;
}
