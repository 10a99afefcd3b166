/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Ends a reference file, for scripts that measure several times in one boot: `write_reference`. */
#include "mark.h"

int main(void)
{
	mark_write();
	return 0;
}
