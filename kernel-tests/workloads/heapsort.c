/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Sorting, searching and hashing of numbers from a fixed generator: `heapsort COUNT`. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 42;

static uint64_t number(void)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return state >> 33;
}

static void sift(uint64_t *heap, size_t at, size_t end)
{
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= end)
			return;
		if (child + 1 < end && heap[child] < heap[child + 1])
			child++;
		if (heap[at] >= heap[child])
			return;
		uint64_t top = heap[at];
		heap[at] = heap[child];
		heap[child] = top;
		at = child;
	}
}

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 100000, hits = 0;
	uint64_t *heap = malloc(count * sizeof(*heap)), hash = 14695981039346656037ull;

	if (!heap)
		return 1;
	for (size_t i = 0; i < count; i++)
		heap[i] = number();
	for (size_t i = count / 2; i-- > 0;)
		sift(heap, i, count);
	for (size_t end = count; end-- > 1;) {
		uint64_t top = heap[0];

		heap[0] = heap[end];
		heap[end] = top;
		sift(heap, 0, end);
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t wanted = number();
		size_t low = 0, high = count;

		while (low < high) {
			size_t middle = (low + high) / 2;

			if (heap[middle] < wanted)
				low = middle + 1;
			else
				high = middle;
		}
		hits += low;
		for (int byte = 0; byte < 8; byte++)
			hash = (hash ^ (wanted >> 8 * byte & 255)) * 1099511628211ull;
	}
	printf("%zu %llu\n", hits, (unsigned long long)hash);
	return 0;
}
