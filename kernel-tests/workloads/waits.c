/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * `waits NAME ROUNDS`: loops whose time is that of a few slow instructions: divisions, a chain of multiplications, loads that
 * miss the caches, locked additions, system calls, and a division where two ways meet.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile uint64_t sink;

__attribute__((noinline)) static void divisions(unsigned long rounds)
{
	uint64_t x = ~0ull, y = 7;

	while (rounds--) {
		__asm__ volatile("" : "+r"(y));
		x = x / y + (rounds << 40);
	}
	sink = x;
}

__attribute__((noinline)) static void multiplications(unsigned long rounds)
{
	uint64_t x = 3;

	while (rounds--) {
		__asm__ volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\tadd $5, %0" : "+r"(x)::"cc");
	}
	sink = x;
}

/* Streaming loads bypass the caches where they can. */
__attribute__((noinline, target("sse4.1"))) static void misses(unsigned long rounds)
{
	static __m128i memory[1 << 12];
	__m128i sum = _mm_setzero_si128();

	while (rounds--) {
		__m128i *at = &memory[rounds * 1664525u >> 3 & ((1 << 12) - 1)];

		sum = _mm_add_epi64(sum, _mm_stream_load_si128(at));
	}
	sink = (uint64_t)_mm_cvtsi128_si64(sum);
}

__attribute__((noinline)) static void locked(unsigned long rounds)
{
	static uint64_t word;

	while (rounds--) {
		__atomic_fetch_add(&word, 3, __ATOMIC_SEQ_CST);
		__asm__ volatile("add $1, %0\n\tror $3, %0" : "+r"(rounds)::"cc");
		__asm__ volatile("rol $3, %0\n\tsub $1, %0" : "+r"(rounds)::"cc");
	}
	sink = word;
}

__attribute__((noinline)) static void calls(unsigned long rounds)
{
	/* PID 1 of the emulated machine has I/O ports, and each exit to user code would look after those that it inherited. */
	syscall(SYS_ioperm, 0, 65536, 0);
	syscall(SYS_iopl, 0);
	while (rounds--)
		syscall(SYS_getppid);
}

/* One round in four comes to the additions by way of the division. */
__attribute__((noinline)) static void meeting(unsigned long rounds)
{
	uint64_t x = 1, y = 3;

	__asm__ volatile("1: test $3, %2\n\tjnz 2f\n\t"
			 "xor %%edx, %%edx\n\tmov %0, %%rax\n\tdiv %1\n\t"
			 "2: add $7, %0\n\tadd %1, %0\n\tror $1, %0\n\tdec %2\n\tjnz 1b"
			 : "+r"(x), "+r"(y), "+r"(rounds)::"rax", "rdx", "cc");
	sink = x;
}

static const struct {
	const char *name;
	void (*run)(unsigned long rounds);
} loads[] = {
	{ "divisions", divisions }, { "multiplications", multiplications }, { "misses", misses },
	{ "locked", locked },	    { "calls", calls },			    { "meeting", meeting },
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	for (unsigned long i = 0; i < sizeof(loads) / sizeof(*loads); i++)
		if (!strcmp(argv[1], loads[i].name)) {
			loads[i].run(strtoul(argv[2], NULL, 0));
			return 0;
		}
	return 2;
}
