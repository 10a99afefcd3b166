/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Nested loops in user space, or the reads that start the same ones in the kernel, where the module knows the rounds:
 * `nested_u TIMES ROUNDS|kernel`.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nested/nests.h"

int main(int argc, char **argv)
{
	unsigned long times = argc > 1 ? strtoul(argv[1], NULL, 0) : 10;
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 1000;
	int in_kernel = argc > 2 && !strcmp(argv[2], "kernel");
	unsigned long found = 0;
	int device = -1;

	if (in_kernel) {
		device = open("/dev/nested", O_RDONLY);
		if (device < 0) {
			perror("/dev/nested");
			return 1;
		}
	}
	while (times--) {
		if (!in_kernel) {
			found = all_nests(rounds);
		} else if (read(device, &found, sizeof(found)) != sizeof(found)) {
			perror("read");
			return 1;
		}
	}
	printf("%lu\n", found);
	return 0;
}
