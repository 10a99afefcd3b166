/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Marks of kernel-tests/src/mark.rs for C: where the reference counts begin and end. */
#ifndef HBBP_MARK_H
#define HBBP_MARK_H

/* nopl imm32(%rax,%rax,1): see DOORBELL in kernel-tests/src/layout.rs. */
#define MARK_BYTES(number) ".byte 0x0f, 0x1f, 0x84, 0x00, " #number ", 0x00, 0x42, 0x48\n\t"
#define MARK_START MARK_BYTES(5)
#define MARK_STOP MARK_BYTES(6)
#define MARK_WRITE MARK_BYTES(9)

static inline void mark_start(void) { __asm__ volatile(MARK_START ::: "memory"); }
static inline void mark_stop(void) { __asm__ volatile(MARK_STOP ::: "memory"); }

static inline void mark_write(void) { __asm__ volatile(MARK_WRITE ::: "memory"); }

#endif
