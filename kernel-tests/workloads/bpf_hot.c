/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A tracing program on a hot path: a BPF program of straight-line arithmetic at the entry of each system call of this
 * process, and system calls in a loop: `bpf_hot SECONDS DUMP`. DUMP gets the bytes that the kernel's compiler made of
 * the program, as the kernel hands them out.
 */
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Repeats a multiplication, an exclusive or and an addition. */
#define ROUNDS 300

static struct bpf_insn program[3 * ROUNDS + 16];
static unsigned n_insns;

static void emit(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	program[n_insns++] = (struct bpf_insn){
		.code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm
	};
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int argc, char **argv)
{
	static uint8_t dump[1 << 16];
	static char log[1 << 16];
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct timespec now, start;
	struct bpf_prog_info info;
	union bpf_attr attr;
	int fd;

	/* Other processes leave at once. */
	emit(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_current_pid_tgid);
	emit(BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32);
	emit(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 3 * ROUNDS + 1, getpid());
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 12345);
	for (int i = 0; i < ROUNDS; i++) {
		emit(BPF_ALU64 | BPF_MUL | BPF_K, 0, 0, 0, 1103515245);
		emit(BPF_ALU64 | BPF_XOR | BPF_X, 0, 2, 0, 0);
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 0, 0, 0, 1000 + i);
	}
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT;
	attr.insns = (uintptr_t)program;
	attr.insn_cnt = n_insns;
	attr.license = (uintptr_t)"GPL";
	attr.log_buf = (uintptr_t)log;
	attr.log_size = sizeof(log);
	attr.log_level = 1;
	strcpy(attr.prog_name, "hbbp_hot");
	fd = bpf(BPF_PROG_LOAD, &attr);
	if (fd < 0) {
		fputs(log, stderr);
		return fail("BPF_PROG_LOAD");
	}

	memset(&info, 0, sizeof(info));
	info.jited_prog_len = sizeof(dump);
	info.jited_prog_insns = (uintptr_t)dump;
	memset(&attr, 0, sizeof(attr));
	attr.info.bpf_fd = fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) || !info.jited_prog_len)
		return fail("BPF_OBJ_GET_INFO_BY_FD");
	if (argc > 2) {
		FILE *file = fopen(argv[2], "w");

		if (!file || fwrite(dump, 1, info.jited_prog_len, file) != info.jited_prog_len || fclose(file))
			return fail(argv[2]);
	}

	memset(&attr, 0, sizeof(attr));
	attr.raw_tracepoint.name = (uintptr_t)"sys_enter";
	attr.raw_tracepoint.prog_fd = fd;
	if (bpf(BPF_RAW_TRACEPOINT_OPEN, &attr) < 0)
		return fail("BPF_RAW_TRACEPOINT_OPEN");
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (int i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - start.tv_sec + 1e-9 * (now.tv_nsec - start.tv_nsec) < seconds);
	return 0;
}
