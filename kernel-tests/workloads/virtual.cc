// SPDX-License-Identifier: GPL-2.0 OR MIT
// Virtual calls all the time, as object-oriented programs with many short methods have them: `virtual ROUNDS`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

struct Shape {
	virtual ~Shape() = default;
	virtual std::uint64_t area() const = 0;
	virtual void grow(std::uint64_t by) = 0;
};

struct Square : Shape {
	std::uint64_t side = 3;
	std::uint64_t area() const override { return side * side; }
	void grow(std::uint64_t by) override { side = (side + by) & 1023; }
};

struct Oblong : Shape {
	std::uint64_t width = 2, height = 5;
	std::uint64_t area() const override { return width * height; }
	void grow(std::uint64_t by) override { width = (width + by) & 511, height = (height ^ by) & 511; }
};

struct Bag : Shape {
	std::vector<std::unique_ptr<Shape>> shapes;
	std::uint64_t area() const override
	{
		std::uint64_t sum = 0;
		for (const auto &shape : shapes)
			sum += shape->area();
		return sum;
	}
	void grow(std::uint64_t by) override
	{
		for (auto &shape : shapes)
			shape->grow(by);
	}
};

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? std::strtoul(argv[1], nullptr, 0) : 1000;
	Bag bag;
	for (int i = 0; i < 100; i++)
		if (i * i % 3)
			bag.shapes.push_back(std::make_unique<Square>());
		else
			bag.shapes.push_back(std::make_unique<Oblong>());
	std::uint64_t sum = 0;
	while (rounds--) {
		bag.grow(rounds & 7);
		sum += bag.area();
	}
	std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
