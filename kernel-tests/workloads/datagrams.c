/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sends datagrams of 60,000 bytes over the loopback device to itself, and receives each before the next. Both calls of the system
 * are in one loop, so that the loop is the caller of all that the kernel does for them. Between two rounds it waits for a while
 * that no clock can be in step with.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "wait.h"

#define BYTES 60000l

static char buffer[BYTES];

static inline __attribute__((always_inline)) long transfer(long call, long socket)
{
	register long flags __asm__("r10") = 0;
	register long address __asm__("r8") = 0;
	register long length __asm__("r9") = 0;
	long n;

	__asm__ volatile("syscall"
			 : "=a"(n)
			 : "a"(call), "D"(socket), "S"(buffer), "d"(BYTES), "r"(flags), "r"(address), "r"(length)
			 : "rcx", "r11", "memory");
	return n;
}

__attribute__((noinline)) static long echo(long socket, unsigned long rounds)
{
	unsigned long chance = 1;
	long sum = 0;

	while (rounds--) {
		transfer(SYS_sendto, socket);
		sum += transfer(SYS_recvfrom, socket);
		chance = wait_by_chance(chance);
	}
	return sum;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc == 2 ? strtoul(argv[1], NULL, 0) : 0;
	struct sockaddr_in here = {
		.sin_family = AF_INET,
		.sin_port = htons(4242),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof(here)) ||
	    connect(fd, (struct sockaddr *)&here, sizeof(here)) || echo(fd, rounds) != (long)rounds * BYTES) {
		perror("usage: datagrams ROUNDS, with the loopback device up");
		return 1;
	}
	return 0;
}
