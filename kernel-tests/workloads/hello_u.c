/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The prime search in user space, and the reads that start it in the kernel, spread over time:
 * `hello_u LIMIT ROUNDS [kernel]`.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hello/prime.h"

__attribute__((noinline)) unsigned long hello_u(unsigned long below)
{
	return primes_below(below);
}

int main(int argc, char **argv)
{
	unsigned long limit = argc > 1 ? strtoul(argv[1], NULL, 0) : 20000;
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 10;
	int in_kernel = argc > 3 && !strcmp(argv[3], "kernel");
	unsigned long found = 0;
	int device = -1;

	if (in_kernel) {
		device = open("/dev/hello", O_RDONLY);
		if (device < 0) {
			perror("/dev/hello");
			return 1;
		}
	}
	for (unsigned long round = 0; round < rounds; round++) {
		if (!in_kernel) {
			found = hello_u(limit);
		} else {
			if (read(device, &found, sizeof(found)) != sizeof(found)) {
				perror("read");
				return 1;
			}
			usleep(2000);
		}
	}
	printf("%lu\n", found);
	return 0;
}
