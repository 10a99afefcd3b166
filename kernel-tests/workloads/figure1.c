// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The micro-benchmark of OptiWISE's Figure 1 (Guo et al., CGO 2024), after its description: two loops of one header, a pair
 * of cheap instructions that run often, a division, and a load that always misses: `figure1 ROUNDS`.
 *
 * The load is a streaming one (MOVNTDQA), which the emulated machine's cost model serves from memory each time.
 */
#include <stdio.h>
#include <stdlib.h>

static char memory[1 << 20] __attribute__((aligned(64)));

__attribute__((noinline, noclone)) unsigned long figure1(unsigned long rounds)
{
	unsigned long x = 1, at = 0;

	__asm__ volatile("mov $16, %%r8d\n\tmov $3, %%r9d\n\t"
			 "1: sub $0x2770d4ee, %0\n\txor $0x7aa3411f, %0\n\tsub $1, %%r8d\n\tjne 1b\n\t"
			 "xor %%edx, %%edx\n\tmov %0, %%rax\n\tdiv %%r9\n\t"
			 "movntdqa (%3, %2), %%xmm0\n\t"
			 "add $64, %2\n\tand $0xfffc0, %2\n\t"
			 "mov $16, %%r8d\n\tsub $1, %1\n\tjne 1b\n\t"
			 : "+r"(x), "+r"(rounds), "+r"(at)
			 : "r"(memory)
			 : "rax", "rdx", "r8", "r9", "xmm0", "cc", "memory");
	return x;
}

int main(int argc, char **argv)
{
	printf("%lu\n", figure1(argc > 1 ? strtoul(argv[1], NULL, 0) : 1000));
	return 0;
}
