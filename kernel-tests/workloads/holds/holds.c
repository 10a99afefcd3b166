// SPDX-License-Identifier: GPL-2.0
/*
 * holds.ko: kernel code with interrupts off. A read of /dev/holds takes as many rounds as the parameter says, and returns eight
 * bytes. In each round, interrupts are off during the divisions and on during the additions.
 */
#include <linux/fs.h>
#include <linux/irqflags.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#define DIVISIONS	1000
#define ADDITIONS	1000

static ulong rounds = 1000;
module_param(rounds, ulong, 0644);

noinline unsigned long holds_k(unsigned long n);
noinline unsigned long holds_k(unsigned long n)
{
	unsigned long value = 1, i;

	while (n--) {
		local_irq_disable();
		for (i = 0; i < DIVISIONS; i++) {
			unsigned long divisor = 3;

			asm volatile("" : "+r"(divisor));
			value = (~value) / divisor;
		}
		local_irq_enable();
		for (i = 0; i < ADDITIONS; i++)
			asm volatile("add $3, %0" : "+r"(value));
	}
	return value;
}

static ssize_t holds_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	unsigned long value = holds_k(rounds);

	if (length < sizeof(value))
		return -EINVAL;
	return copy_to_user(buffer, &value, sizeof(value)) ? -EFAULT : sizeof(value);
}

static const struct file_operations operations = { .owner = THIS_MODULE, .read = holds_read };
static struct miscdevice holds = { .minor = MISC_DYNAMIC_MINOR, .name = "holds", .fops = &operations };

static int __init holds_init(void)
{
	return misc_register(&holds);
}

static void __exit holds_exit(void)
{
	misc_deregister(&holds);
}

module_init(holds_init);
module_exit(holds_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Interrupts off for long, a workload of hbbp-sys' kernel tests");
