// SPDX-License-Identifier: GPL-2.0
/*
 * nested.ko: loops with known trip counts in the kernel. A read of /dev/nested runs all of them and returns eight bytes;
 * the number of rounds is a parameter.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "nests.h"

static ulong rounds = 1000;
module_param(rounds, ulong, 0644);

static ssize_t nested_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	unsigned long found = all_nests(rounds);

	if (length < sizeof(found))
		return -EINVAL;
	return copy_to_user(buffer, &found, sizeof(found)) ? -EFAULT : sizeof(found);
}

static const struct file_operations operations = { .owner = THIS_MODULE, .read = nested_read };
static struct miscdevice nested = { .minor = MISC_DYNAMIC_MINOR, .name = "nested", .fops = &operations };

static int __init nested_init(void)
{
	return misc_register(&nested);
}

static void __exit nested_exit(void)
{
	misc_deregister(&nested);
}

module_init(nested_init);
module_exit(nested_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Nested loops, a workload of hbbp-sys' kernel tests");
