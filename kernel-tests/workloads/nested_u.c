/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Nested loops in user space, and the reads that start the same ones in the kernel, 1000 rounds each:
 * `nested_u TIMES [kernel]`.
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
			found = all_nests(1000);
		} else if (read(device, &found, sizeof(found)) != sizeof(found)) {
			perror("read");
			return 1;
		}
	}
	printf("%lu\n", found);
	return 0;
}
