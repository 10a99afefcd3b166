// SPDX-License-Identifier: GPL-2.0
/*
 * hello.ko: the prime search in the kernel. A read of /dev/hello searches once and returns the result as
 * eight bytes; the limit is a parameter. With spin_seconds it keeps its CPU at load, for the watchdog.
 */
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "prime.h"

static ulong limit = 20000;
module_param(limit, ulong, 0644);
static uint spin_seconds;
module_param(spin_seconds, uint, 0444);

noinline unsigned long hello_k(unsigned long below);
noinline unsigned long hello_k(unsigned long below)
{
	return primes_below(below);
}

static ssize_t hello_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	unsigned long found = hello_k(limit);

	if (length < sizeof(found))
		return -EINVAL;
	return copy_to_user(buffer, &found, sizeof(found)) ? -EFAULT : sizeof(found);
}

static const struct file_operations operations = { .owner = THIS_MODULE, .read = hello_read };
static struct miscdevice hello = { .minor = MISC_DYNAMIC_MINOR, .name = "hello", .fops = &operations };

static int __init hello_init(void)
{
	unsigned long end = jiffies + spin_seconds * HZ;

	while (spin_seconds && time_before(jiffies, end))
		cpu_relax();
	return misc_register(&hello);
}

static void __exit hello_exit(void)
{
	misc_deregister(&hello);
}

module_init(hello_init);
module_exit(hello_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Prime number search, a workload of hbbp-sys' kernel tests");
