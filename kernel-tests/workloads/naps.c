/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Sleeps again and again, so that timers wake an idle CPU: `naps ROUNDS`. */
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct timespec nap = { .tv_nsec = 20000 };
	unsigned long rounds = argc == 2 ? strtoul(argv[1], NULL, 0) : 1;

	while (rounds--)
		nanosleep(&nap, NULL);
	return 0;
}
