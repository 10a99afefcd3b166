/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* Storms of kernel work: `storms NAME ROUNDS [FILE]`. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *file;

static void need(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void syscalls(unsigned long rounds)
{
	struct stat status;
	char byte;
	int zero = open("/dev/zero", O_RDONLY);

	need(zero >= 0, "/dev/zero");
	while (rounds--) {
		syscall(SYS_getppid);
		need(read(zero, &byte, 1) == 1, "read");
		need(stat("/", &status) == 0, "stat");
	}
}

/* Two processes that send each other bytes over a pair of descriptors. */
static void ping_pong(int here, int there, unsigned long rounds)
{
	char buffer[512] = { 0 };
	pid_t child = fork();

	need(child >= 0, "fork");
	if (child == 0) {
		while (rounds--)
			if (read(there, buffer, sizeof(buffer)) <= 0 || write(there, buffer, sizeof(buffer)) <= 0)
				_exit(1);
		_exit(0);
	}
	while (rounds--) {
		need(write(here, buffer, sizeof(buffer)) == sizeof(buffer), "write");
		for (size_t got = 0; got < sizeof(buffer);) {
			ssize_t n = read(here, buffer, sizeof(buffer) - got);

			need(n > 0, "read");
			got += (size_t)n;
		}
	}
	waitpid(child, NULL, 0);
}

static void pipes(unsigned long rounds)
{
	int ends[2];

	need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	ping_pong(ends[0], ends[1], rounds);
}

/* The same without preemption when one wakes the other: two context switches for each round, on any boot. */
static void turns(unsigned long rounds)
{
	struct sched_param parameters = { 0 };

	need(sched_setscheduler(0, SCHED_BATCH, &parameters) == 0, "sched_setscheduler");
	pipes(rounds);
}

static void loopback(unsigned long rounds)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), here = socket(AF_INET, SOCK_STREAM, 0), there;

	need(bind(listener, (struct sockaddr *)&address, length) == 0, "bind");
	need(listen(listener, 1) == 0, "listen");
	need(getsockname(listener, (struct sockaddr *)&address, &length) == 0, "getsockname");
	need(connect(here, (struct sockaddr *)&address, length) == 0, "connect");
	there = accept(listener, NULL, NULL);
	need(there >= 0, "accept");
	ping_pong(here, there, rounds);
}

static void files(unsigned long rounds)
{
	char name[64], block[4096];

	memset(block, 7, sizeof(block));
	while (rounds--) {
		int descriptor;

		snprintf(name, sizeof(name), "/tmp/file-%lu", rounds % 64);
		descriptor = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
		need(descriptor >= 0, name);
		for (int i = 0; i < 8; i++)
			need(write(descriptor, block, sizeof(block)) == sizeof(block), "write");
		need(lseek(descriptor, 0, SEEK_SET) == 0, "lseek");
		while (read(descriptor, block, sizeof(block)) > 0)
			;
		close(descriptor);
		if (rounds % 2)
			unlink(name);
	}
}

static void modules(unsigned long rounds)
{
	while (rounds--) {
		int descriptor = open(file, O_RDONLY);

		need(descriptor >= 0, file);
		need(syscall(SYS_finit_module, descriptor, "", 0) == 0, "finit_module");
		need(syscall(SYS_delete_module, "hello", 0) == 0, "delete_module");
		close(descriptor);
	}
}

static void forks(unsigned long rounds)
{
	char *arguments[] = { "storms", "nothing", "0", NULL }, *environment[] = { NULL };

	while (rounds--) {
		pid_t child;

		need(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environment) == 0, "posix_spawn");
		waitpid(child, NULL, 0);
		child = fork();
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
	}
}

static void page_faults(unsigned long rounds)
{
	while (rounds--) {
		char *memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		need(memory != MAP_FAILED, "mmap");
		for (int page = 0; page < 256; page++)
			memory[page * 4096] = 1;
		munmap(memory, 1 << 20);
	}
}

/* Keeps all counters of CPU 0 for some seconds: the first event that finds none is the last one. */
static void counters(unsigned long seconds)
{
	struct perf_event_attr instructions = {
		.type = PERF_TYPE_RAW, .size = sizeof(instructions), .config = 0xc0, .pinned = 1,
	};
	unsigned long long count;
	int taken = 0;

	for (;; taken++) {
		int event = syscall(SYS_perf_event_open, &instructions, -1, 0, -1, 0);

		need(event >= 0, "perf_event_open");
		if (read(event, &count, sizeof(count)) != sizeof(count))
			break;
	}
	printf("%d counters taken\n", taken);
	fflush(stdout);
	sleep(seconds);
}

static void nothing(unsigned long rounds)
{
	(void)rounds;
}

static const struct {
	const char *name;
	void (*run)(unsigned long rounds);
} storms[] = {
	{ "syscalls", syscalls }, { "pipes", pipes }, { "turns", turns }, { "loopback", loopback },	      { "files", files },
	{ "modules", modules },	  { "forks", forks }, { "page-faults", page_faults }, { "nothing", nothing },
	{ "counters", counters },
};

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	file = argc > 3 ? argv[3] : NULL;
	for (unsigned long i = 0; i < sizeof(storms) / sizeof(*storms); i++)
		if (!strcmp(argv[1], storms[i].name)) {
			storms[i].run(strtoul(argv[2], NULL, 0));
			return 0;
		}
	return 2;
}
