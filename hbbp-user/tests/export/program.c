/* A program without a library, for exact counts by single steps: calls, inlined calls, a switch, recursion, function
 * pointers, and loops of known length. Built for exports to compilers and binary optimizers. */

typedef unsigned long word;

static volatile word sink;

__attribute__((noinline)) word collatz(word n)
{
	word steps = 0;

	while (n != 1) {
		if (n & 1)
			n = 3 * n + 1;
		else
			n /= 2;
		steps++;
	}
	return steps;
}

static inline word mixed(word a, word b)
{
	a ^= b >> 7;
	a *= 0x9e3779b97f4a7c15;
	return a ^ a >> 29;
}

__attribute__((noinline)) word classify(word n)
{
	switch (n % 7) {
	case 0: return mixed(n, 3);
	case 1: return n + 11;
	case 2: return n * n;
	case 3: return ~n;
	case 4: return n << 3;
	case 5: return mixed(n, n);
	default: return n - 1;
	}
}

__attribute__((noinline)) word fibonacci(word n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

static word add(word a, word b) { return a + b; }
static word sub(word a, word b) { return a - b; }

__attribute__((noinline)) word (*operation(word n))(word, word)
{
	return n % 3 == 1 ? sub : add;
}

__attribute__((noinline)) word sorted(word seed)
{
	word values[48];

	for (word i = 0; i < 48; i++)
		values[i] = seed = mixed(seed, i);
	for (word i = 1; i < 48; i++) {
		word value = values[i], j = i;

		for (; j && values[j - 1] > value; j--)
			values[j] = values[j - 1];
		values[j] = value;
	}
	return values[24];
}

__attribute__((noinline)) word work(void)
{
	word sum = 0;

	for (word i = 1; i < 120; i++) {
		sum += collatz(i) + classify(i * 31);
		sum = operation(i)(sum, i);
	}
	for (word i = 0; i < 6; i++)
		sum += sorted(sum);
	return sum + fibonacci(12);
}

__attribute__((noreturn, used, force_align_arg_pointer)) void begin(void)
{
	sink = work();
	__asm__ volatile("syscall" : : "a"(60), "D"(0));
	__builtin_unreachable();
}
