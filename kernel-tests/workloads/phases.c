/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Phases of known lengths, each a function of its own: `phases ROUNDS`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define noinline __attribute__((noinline))

static volatile uint64_t sink;

/* Collatz sequences: branches by chance. */
static noinline void collatz(unsigned long rounds)
{
	uint64_t steps = 0;

	for (unsigned long n = 1; n < rounds; n++)
		for (uint64_t x = n; x != 1; steps++)
			x = x % 2 ? 3 * x + 1 : x / 2;
	sink = steps;
}

/* A product of matrices: three loops in each other. */
static noinline void matrix(unsigned long rounds)
{
	static double a[24][24], b[24][24], c[24][24];

	while (rounds--)
		for (int i = 0; i < 24; i++)
			for (int j = 0; j < 24; j++) {
				double sum = (double)rounds;

				for (int k = 0; k < 24; k++)
					sum += a[i][k] * b[k][j];
				c[i][j] = sum;
			}
	sink = (uint64_t)c[3][4];
}

/* A checksum, byte by byte and bit by bit. */
static noinline void checksum(unsigned long rounds)
{
	uint32_t crc = ~0u;

	while (rounds--) {
		crc ^= (uint8_t)rounds;
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
	}
	sink = crc;
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc == 2 ? strtoul(argv[1], NULL, 0) : 1;

	while (rounds--) {
		collatz(4000);
		matrix(30);
		checksum(40000);
	}
	printf("%llu\n", (unsigned long long)sink);
	return 0;
}
