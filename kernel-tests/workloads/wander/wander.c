// SPDX-License-Identifier: GPL-2.0
/*
 * wander.ko: a system call that gives its CPU to nobody and whose branch stacks never come again. A read of /dev/wander takes
 * as many steps as the parameter says, each with two branches that chance takes, and returns eight bytes.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

static ulong steps = 1000;
module_param(steps, ulong, 0644);

/* A linear congruential generator (Knuth, The Art of Computer Programming, vol. 2, 3.3.4, line 26): its high bits are the random ones. */
noinline unsigned long wander_k(unsigned long n);
noinline unsigned long wander_k(unsigned long n)
{
	unsigned long state = 1, found = 0;

	while (n--) {
		state = state * 6364136223846793005UL + 1442695040888963407UL;
		if (state >> 63)
			asm volatile("" : "+r"(found));
		else
			asm volatile("inc %0" : "+r"(found));
		if (state >> 62 & 1)
			asm volatile("add $2, %0" : "+r"(found));
		else
			asm volatile("xor $1, %0" : "+r"(found));
	}
	return found;
}

static ssize_t wander_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	unsigned long found = wander_k(steps);

	if (length < sizeof(found))
		return -EINVAL;
	return copy_to_user(buffer, &found, sizeof(found)) ? -EFAULT : sizeof(found);
}

static const struct file_operations operations = { .owner = THIS_MODULE, .read = wander_read };
static struct miscdevice wander = { .minor = MISC_DYNAMIC_MINOR, .name = "wander", .fops = &operations };

static int __init wander_init(void)
{
	return misc_register(&wander);
}

static void __exit wander_exit(void)
{
	misc_deregister(&wander);
}

module_init(wander_init);
module_exit(wander_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A long system call, a workload of hbbp-sys' kernel tests");
