/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Small kernels of user code that are hard to sample: `kernels NAME ROUNDS`. The first three are modelled on
 * section 4.3 of "Establishing a Base of Trust with Performance Counters for Enterprise Workloads", ATC 2015.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define noinline __attribute__((noinline))

static volatile uint64_t sink;

/* Every other round divides: samples gather at the division. */
static noinline void latency(unsigned long rounds)
{
	volatile uint64_t x = 1, y = 3;

	while (rounds--) {
		if (rounds % 2)
			x /= y;
		else
			x += y;
	}
	sink = x;
}

/* Ten functions of equal work that call one another. */
#define LINK(name, next) \
	static noinline uint64_t name(uint64_t x) \
	{ \
		x = x * 5 + 1; \
		return next ^ x; \
	}
LINK(link9, (x >> 3))
LINK(link8, link9(x))
LINK(link7, link8(x))
LINK(link6, link7(x))
LINK(link5, link6(x))
LINK(link4, link5(x))
LINK(link3, link4(x))
LINK(link2, link3(x))
LINK(link1, link2(x))
LINK(link0, link1(x))

static noinline void callchain(unsigned long rounds)
{
	uint64_t x = 1;

	while (rounds--)
		x = link0(x);
	sink = x;
}

/* Distance of a point to a box: a chain of tests with short blocks, whose length depends on the data. */
static noinline double outside(double x, double y, double z, double a, double b, double c)
{
	double safety = 0;

	if (x > a)
		safety = x - a;
	if (x < -a && -a - x > safety)
		safety = -a - x;
	if (y > b && y - b > safety)
		safety = y - b;
	if (y < -b && -b - y > safety)
		safety = -b - y;
	if (z > c && z - c > safety)
		safety = z - c;
	if (z < -c && -c - z > safety)
		safety = -c - z;
	return safety;
}

static noinline double inside(double x, double y, double z, double a, double b, double c)
{
	double safety = a - (x < 0 ? -x : x), other;

	other = b - (y < 0 ? -y : y);
	if (other < safety)
		safety = other;
	other = c - (z < 0 ? -z : z);
	if (other < safety)
		safety = other;
	return safety < 0 ? 0 : safety;
}

static noinline void g4box(unsigned long rounds)
{
	uint64_t seed = 88172645463325252ull;
	double sum = 0;

	while (rounds--) {
		double p[3];

		for (int i = 0; i < 3; i++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			p[i] = (double)(seed >> 40) / 4096 - 2048;
		}
		sum += outside(p[0], p[1], p[2], 1000, 700, 400) + inside(p[0], p[1], p[2], 1000, 700, 400);
	}
	sink = (uint64_t)sum;
}

static noinline void divide(unsigned long rounds)
{
	uint64_t x = ~0ull, y = 7;

	while (rounds--) {
		__asm__ volatile("" : "+r"(y));
		x = x / y + (rounds << 40);
	}
	sink = x;
}

/* A walk through eight megabytes in an order that no prefetcher guesses. */
static noinline void cache(unsigned long rounds)
{
	static uint32_t next[1 << 21];
	uint32_t at = 0;

	for (uint32_t i = 0; i < 1 << 21; i++)
		next[i] = (i * 1664525u + 1013904223u) & ((1 << 21) - 1);
	while (rounds--)
		at = next[at];
	sink = at;
}

/* Forty additions and rotations in a row: one block far over 18 instructions. */
static noinline void long_blocks(unsigned long rounds)
{
	uint64_t a = 1, b = 2, c = 3, d = 4;

	while (rounds--) {
#define STEP a += b, b = b << 7 | b >> 57, c ^= a, d += c, c = c << 13 | c >> 51, a ^= d;
		STEP STEP STEP STEP STEP STEP STEP STEP
#undef STEP
	}
	sink = a ^ b ^ c ^ d;
}

/* Bytes looked at one by one with several tests each: blocks of two and three instructions. */
static noinline void short_blocks(unsigned long rounds)
{
	static const char text[] = "if (x < 10) { y += x * 3; } else { return \"z\"; } /* 42 */";
	uint64_t letters = 0, digits = 0, blanks = 0, others = 0;

	while (rounds--)
		for (const char *c = text; *c; c++) {
			if (*c >= 'a' && *c <= 'z')
				letters++;
			else if (*c >= '0' && *c <= '9')
				digits++;
			else if (*c == ' ')
				blanks++;
			else
				others++;
			__asm__ volatile("");
		}
	sink = letters ^ digits << 16 ^ blanks << 32 ^ others << 48;
}

__attribute__((target("avx2,fma"))) static noinline void avx2(unsigned long rounds)
{
	static float a[1024], b[1024];
	__m256i counts = _mm256_setzero_si256();

	for (int i = 0; i < 1024; i++)
		a[i] = (float)i, b[i] = 1.0f / (float)(i + 1);
	while (rounds--)
		for (int i = 0; i < 1024; i += 8) {
			__m256 x = _mm256_loadu_ps(a + i), y = _mm256_loadu_ps(b + i);

			x = _mm256_fmadd_ps(x, y, y);
			_mm256_storeu_ps(b + i, _mm256_min_ps(x, _mm256_set1_ps(2.0f)));
			counts = _mm256_add_epi32(counts, _mm256_cvtps_epi32(x));
		}
	sink = (uint64_t)_mm256_extract_epi32(counts, 0);
}

static const struct {
	const char *name;
	void (*run)(unsigned long rounds);
} kernels[] = {
	{ "latency", latency }, { "callchain", callchain },	{ "g4box", g4box },		  { "divide", divide },
	{ "cache", cache },	{ "long-blocks", long_blocks }, { "short-blocks", short_blocks }, { "avx2", avx2 },
};

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	for (unsigned long i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (!strcmp(argv[1], kernels[i].name)) {
			kernels[i].run(strtoul(argv[2], NULL, 0));
			printf("%llu\n", (unsigned long long)sink);
			return 0;
		}
	return 2;
}
