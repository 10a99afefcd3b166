/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Two threads that do different things, one in user code and one in the kernel: `threads ROUNDS`. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define noinline __attribute__((noinline))

static volatile uint64_t sink;

static noinline uint64_t spins(unsigned long rounds)
{
	uint64_t x = 1;

	while (rounds--)
		x = x & 1 ? 3 * x + 1 : x >> 1;
	return x;
}

static noinline void calls(unsigned long rounds)
{
	while (rounds--)
		syscall(SYS_getppid);
}

static void *spinner(void *rounds)
{
	sink = spins(50 * *(unsigned long *)rounds);
	return NULL;
}

static void *caller(void *rounds)
{
	calls(*(unsigned long *)rounds);
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc == 2 ? strtoul(argv[1], NULL, 0) : 1;
	pthread_t threads[2];

	if (pthread_create(&threads[0], NULL, spinner, &rounds) || pthread_create(&threads[1], NULL, caller, &rounds))
		return 1;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	printf("%llu\n", (unsigned long long)sink);
	return 0;
}
