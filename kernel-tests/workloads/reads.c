/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Reads the first 64 KiB of a file again and again, through the page cache where the file system has one. The system is called
 * in the loop itself, so that the loop is the caller of all that the kernel does for it. Between two reads it waits for a while
 * that no clock can be in step with.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "wait.h"

#define BYTES 65536l

static char buffer[BYTES];

__attribute__((noinline)) static long read_all(long file, unsigned long rounds)
{
	register long offset __asm__("r10") = 0;
	unsigned long chance = 1;
	long sum = 0;

	while (rounds--) {
		long n;

		__asm__ volatile("syscall"
				 : "=a"(n)
				 : "a"(SYS_pread64), "D"(file), "S"(buffer), "d"(BYTES), "r"(offset)
				 : "rcx", "r11", "memory");
		sum += n;
		chance = wait_by_chance(chance);
	}
	return sum;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc == 3 ? strtoul(argv[2], NULL, 0) : 0;
	int file = argc == 3 ? open(argv[1], O_RDONLY) : -1;

	if (file < 0 || read_all(file, rounds) != (long)rounds * BYTES) {
		perror("usage: reads FILE ROUNDS");
		return 1;
	}
	return 0;
}
