/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Compresses a file by zstd at several levels and decompresses it again: `zstd_round_trip FILE`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* One for each strategy of the library, from fast to optimal. */
static const int levels[] = { 1, 3, 5, 6, 9, 13, 16 };

int main(int argc, char **argv)
{
	enum { CAPACITY = 1 << 20 };
	FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
	size_t bound = ZSTD_compressBound(CAPACITY), length;
	char *text = malloc(CAPACITY), *packed = malloc(bound), *unpacked = malloc(CAPACITY);

	if (!file || !text || !packed || !unpacked)
		return 2;
	length = fread(text, 1, CAPACITY, file);
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		size_t packed_length = ZSTD_compress(packed, bound, text, length, levels[i]);
		size_t unpacked_length = ZSTD_decompress(unpacked, CAPACITY, packed, packed_length);

		if (unpacked_length != length || memcmp(text, unpacked, length))
			return 1;
		printf("level %d: %zu bytes\n", levels[i], packed_length);
	}
	return 0;
}
