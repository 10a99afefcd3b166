/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Code whose instructions are counted by hand. Each case marks its own span, prints how many instructions
 * of user code retire in it, and has the reference written.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "mark.h"

#define PAGE 4096ul

static unsigned char *fresh(unsigned long bytes, int protection)
{
	void *memory = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	/* One fault for each page, not for each huge page. */
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	return memory;
}

/* mov; n times dec, jnz */
static unsigned long loop(unsigned long n)
{
	__asm__ volatile(MARK_START "mov %0, %%rcx\n1: dec %%rcx\n\tjnz 1b\n\t" MARK_STOP ::"r"(n) : "rcx", "memory");
	return 1 + 2 * n;
}

/* mov; n times (three mov, a REP MOVSB of `count` bytes, dec, jnz): REP counts once, also for nothing. */
static unsigned long repeat(unsigned long n, unsigned long count)
{
	unsigned char *memory = fresh(2 * PAGE, PROT_READ | PROT_WRITE);

	memset(memory, 1, 2 * PAGE);
	__asm__ volatile(MARK_START
			 "mov %0, %%rdx\n"
			 "1: mov %1, %%rsi\n\tmov %2, %%rdi\n\tmov %3, %%rcx\n\trep movsb\n\t"
			 "dec %%rdx\n\tjnz 1b\n\t" MARK_STOP ::"r"(n), "r"(memory), "r"(memory + PAGE), "r"(count)
			 : "rcx", "rdx", "rsi", "rdi", "memory");
	return 1 + 6 * n;
}

/* three mov; REP STOSB over n pages that are not there yet: it faults n times and retires once. */
static unsigned long repeat_faulting(unsigned long n)
{
	unsigned char *memory = fresh(n * PAGE, PROT_READ | PROT_WRITE);

	__asm__ volatile(MARK_START "mov %0, %%rdi\n\tmov %1, %%rcx\n\tmov $7, %%eax\n\trep stosb\n\t" MARK_STOP ::"r"(memory),
			 "r"(n * PAGE)
			 : "rax", "rcx", "rdi", "memory");
	return 4;
}

/* two mov; n times (a store that faults, add, dec, jnz): an instruction that faulted retires once. */
static unsigned long faults(unsigned long n)
{
	unsigned char *memory = fresh(n * PAGE, PROT_READ | PROT_WRITE);
	struct rusage before, after;

	getrusage(RUSAGE_SELF, &before);
	__asm__ volatile(MARK_START "mov %0, %%rdi\n\tmov %1, %%rcx\n"
				    "1: movb $1, (%%rdi)\n\tadd $4096, %%rdi\n\tdec %%rcx\n\tjnz 1b\n\t" MARK_STOP ::"r"(memory),
			 "r"(n)
			 : "rcx", "rdi", "memory");
	getrusage(RUSAGE_SELF, &after);
	if (after.ru_minflt - before.ru_minflt < (long)n) {
		fprintf(stderr, "only %ld faults\n", after.ru_minflt - before.ru_minflt);
		exit(1);
	}
	return 2 + 4 * n;
}

/* Code with the two marks around it, in memory that can be written while it runs. */
static void call_marked(unsigned char *memory, unsigned long offset, const unsigned char *code, unsigned long length, unsigned long n,
			unsigned long *sum)
{
	static const unsigned char start[] = { 0x0f, 0x1f, 0x84, 0x00, 5, 0, 0x42, 0x48 };
	static const unsigned char stop[] = { 0x0f, 0x1f, 0x84, 0x00, 6, 0, 0x42, 0x48, 0xc3 };
	unsigned long result = 0, rcx = n;

	memcpy(memory + offset - sizeof(start), start, sizeof(start));
	memcpy(memory + offset, code, length);
	memcpy(memory + offset + length, stop, sizeof(stop));
	__asm__ volatile("call *%2" : "+c"(rcx), "+S"(result) : "r"(memory + offset - sizeof(start)) : "rax", "rdi", "memory", "cc");
	*sum = result;
}

/* n times (a store into the next instruction, that instruction, movzx, add, dec, jnz) */
static unsigned long modified(unsigned long n)
{
	static const unsigned char code[] = {
		0x88, 0x0d, 0x01, 0x00, 0x00, 0x00,	/* mov %cl, 1(%rip): the immediate below */
		0xb0, 0x00,				/* mov $0, %al */
		0x0f, 0xb6, 0xc0,			/* movzbl %al, %eax */
		0x48, 0x01, 0xc6,			/* add %rax, %rsi */
		0x48, 0xff, 0xc9,			/* dec %rcx */
		0x75, 0xed,				/* jnz to the first */
	};
	unsigned char *memory = fresh(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	unsigned long sum, expected = 0, i;

	call_marked(memory, 64, code, sizeof(code), n, &sum);
	for (i = 1; i <= n; i++)
		expected += i & 0xff;
	if (sum != expected) {
		fprintf(stderr, "the modified code added up to %lu, not %lu\n", sum, expected);
		exit(1);
	}
	return 6 * n;
}

/* n times (a ten-byte mov that lies on two pages, add, dec, jnz) */
static unsigned long crossing(unsigned long n)
{
	static const unsigned char code[] = {
		0x48, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0,	/* movabs $1, %rax */
		0x48, 0x01, 0xc6,			/* add %rax, %rsi */
		0x48, 0xff, 0xc9,			/* dec %rcx */
		0x75, 0xee,				/* jnz to the first */
	};
	unsigned char *memory = fresh(2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	unsigned long sum;

	call_marked(memory, PAGE - 5, code, sizeof(code), n, &sum);
	return 4 * n;
}

static unsigned long plain(void) { return loop(1000000); }
static unsigned long interrupted(void) { return loop(100000000); }
static unsigned long repeated(void) { return repeat(10000, 1000); }
static unsigned long repeated_nothing(void) { return repeat(10000, 0); }
static unsigned long repeated_faulting(void) { return repeat_faulting(1000); }
static unsigned long faulting(void) { return faults(10000); }
static unsigned long self_modifying(void) { return modified(3000); }
static unsigned long page_crossing(void) { return crossing(100000); }

static const struct {
	const char *name;
	unsigned long (*run)(void);
} cases[] = {
	{ "loop", plain },
	{ "interrupted", interrupted },
	{ "rep", repeated },
	{ "rep-nothing", repeated_nothing },
	{ "rep-faulting", repeated_faulting },
	{ "faults", faulting },
	{ "self-modifying", self_modifying },
	{ "page-crossing", page_crossing },
};

int main(void)
{
	for (unsigned long i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		printf("%s %lu\n", cases[i].name, cases[i].run());
		mark_write();
	}
	return 0;
}
