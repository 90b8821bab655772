// The kernels of accumulators' sums beside the scalar rule, to the bit: every instruction set of
// this processor, every named rule and some that are made up, sums in one block and in several.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/accumulate_kernels.h"
#include "number/number_grid.h"
#include "scaling/accumulated_product.h"

namespace ada::backend::cpu {
namespace {

using scaling::Accumulator;
using scaling::AccumulatorCounts;
using enum scaling::AccumulatorRounding;

struct Codes {
  NumberFormat format;
  std::vector<float> values;
};
// Numbers of a format over `octaves` below `top`, some of them zero.
Codes RandomCodes(const NumberFormat& format, std::int64_t count, double top, double octaves,
                  std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> exponent(-octaves, 0), share(0, 1);
  Codes codes{format, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = normal(random) * top * std::exp2(exponent(random));
    codes.values.push_back(share(random) < 0.1 ? 0.0f : RoundTo(format, value));
  }
  return codes;
}

std::vector<Accumulator> Rules() {
  std::vector<Accumulator> rules;
  for (const scaling::NamedAccumulator& named : scaling::NamedAccumulators())
    rules.push_back(named.rule);
  rules.push_back({8, 10, kFp32, kTruncate, 0});
  rules.push_back({32, 18, kFp32, kNearest, 96});
  rules.push_back({32, 13, kBf16, kNearest, 64});
  rules.push_back({16, 20, {5, 7, 15}, kTruncate, 0});
  rules.push_back({4, 30, kFp32, kNearest, 0});
  rules.push_back({3, Accumulator::kExact, kFp32, kTruncate, 6});
  return rules;
}

struct Sums {
  std::vector<float> c;
  AccumulatorCounts counts;
};

// As the ops call them: rows with one panel, in blocks of `step` products.
Sums ByKernels(const AccumulateKernels& kernels, const Accumulator& rule, const Codes& a,
               const Codes& b, std::int64_t rows, std::int64_t k, std::int64_t step, bool counts) {
  std::vector<float> panel(static_cast<std::size_t>(k * kPanel));
  for (std::int64_t i = 0; i < k; ++i)
    for (std::int64_t lane = 0; lane < kPanel; ++lane)
      panel[static_cast<std::size_t>(i * kPanel + lane)] =
          b.values[static_cast<std::size_t>(lane * k + i)];
  std::vector<std::int16_t> a_exponents(a.values.size()), b_exponents(panel.size());
  const auto least = [](const Codes& of) { return std::max(LowestExponentOf(of.format), -126); };
  const int largest_a = kernels.exponents(a.values.data(), rows * k, least(a), a_exponents.data());
  const int largest_b = kernels.exponents(panel.data(), k * kPanel, least(b), b_exponents.data());
  const auto values = static_cast<std::size_t>(rows * kPanel);
  std::vector<float> part(values), main(values);
  std::vector<double> exact(values), magnitudes(values);
  Sums sums;
  for (std::int64_t at = 0; at < k; at += step) {
    AccumulateArgs args;
    args.rule = rule;
    args.a = a.values.data() + at, args.a_exponents = a_exponents.data() + at, args.a_row = k;
    args.b = panel.data() + at * kPanel, args.b_exponents = b_exponents.data() + at * kPanel;
    args.rows = rows, args.k = std::min(step, k - at), args.first = at;
    args.vectors = a.format.mantissa_bits + b.format.mantissa_bits + 2 <= 24 && largest_a < 60 &&
                   largest_b < 50;
    args.part = part.data(), args.main = main.data();
    if (counts)
      args.exact = exact.data(), args.magnitudes = magnitudes.data(), args.counts = &sums.counts;
    kernels.accumulate(args);
  }
  for (std::size_t i = 0; i < values; ++i) {
    sums.c.push_back(rule.promote > 0 ? main[i] + part[i] : part[i]);
    if (counts) sums.counts.Take(sums.c.back(), exact[i], magnitudes[i]);
  }
  return sums;
}

void Compare(const Codes& a, const Codes& b, std::int64_t rows, std::int64_t k) {
  const auto least = [](const Codes& of) { return std::max(LowestExponentOf(of.format), -126); };
  for (const Accumulator& rule : Rules()) {
    Sums wanted;
    wanted.c.resize(static_cast<std::size_t>(rows * kPanel));
    scaling::AccumulatedProduct(rule, {a.values.data(), rows, least(a)},
                                {b.values.data(), kPanel, least(b)}, k, wanted.c.data(),
                                &wanted.counts);
    const std::int64_t block = rule.group * ((64 + rule.group - 1) / rule.group);
    for (const Kernels* set : KernelsHere()) {
      for (const std::int64_t step : {k, block}) {
        for (const bool counts : {false, true}) {
          const Sums got = ByKernels(AccumulateKernelsOf(*set), rule, a, b, rows, k, step, counts);
          int wrong = 0;
          for (std::size_t i = 0; i < got.c.size(); ++i) {
            const bool nan = std::isnan(got.c[i]) && std::isnan(wanted.c[i]);
            wrong += nan || BitsOf(got.c[i]) == BitsOf(wanted.c[i]) ? 0 : 1;
          }
          const std::string name = scaling::AccumulatorText(rule), isa = set->name;
          CAPTURE(name);
          CAPTURE(isa);
          CAPTURE(step);
          CAPTURE(counts);
          CHECK(wrong == 0);
          if (!counts) continue;
          CHECK(got.counts.products == wanted.counts.products);
          CHECK(got.counts.swallowed == wanted.counts.swallowed);
          CHECK(got.counts.lost == wanted.counts.lost);
          CHECK(got.counts.overflow == wanted.counts.overflow);
          CHECK(got.counts.signal == wanted.counts.signal);
          CHECK(got.counts.pull == wanted.counts.pull);
          CHECK(got.counts.max_rel == wanted.counts.max_rel);
        }
      }
    }
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("sums of accumulators are the scalar rule's in every instruction set") {
    std::mt19937 random(7);
    const struct {
      NumberFormat a, b;
      double top_a, top_b, octaves;
      std::int64_t k;
    } cases[] = {
        {kFp8E4M3, kFp8E4M3, 60, 60, 0, 200},  {kFp8E5M2, kFp8E4M3, 4000, 60, 20, 333},
        {kFp16, kFp16, 4, 4, 0, 130},          {kFp16, kFp16, 200, 200, 0, 100},
        {kFp16, kFp16, 1, 1e-6, 20, 96},       {kBf16, kBf16, 4, 1e-3, 24, 257},
        {kBf16, kBf16, 1e-20, 1e-17, 40, 150}, {kBf16, kBf16, 1e-37, 1e-2, 10, 70},
        {kFp32, kFp32, 1, 1, 5, 64},
    };
    for (const auto& c : cases) {
      CAPTURE(c.k);
      CAPTURE(c.top_a);
      const Codes a = RandomCodes(c.a, 5 * c.k, c.top_a, c.octaves, random);
      const Codes b = RandomCodes(c.b, kPanel * c.k, c.top_b, c.octaves, random);
      Compare(a, b, 5, c.k);
    }
  }

  TEST_CASE("inf and NaN go through an accumulator as in IEEE 754") {
    std::mt19937 random(8);
    Codes a = RandomCodes(kFp16, 3 * 80, 2, 0, random);
    Codes b = RandomCodes(kFp16, kPanel * 80, 2, 0, random);
    a.values[10] = INFINITY, a.values[90] = NAN;
    b.values[5] = -INFINITY, b.values[7 * 80 + 60] = INFINITY;
    Compare(a, b, 3, 80);
  }
}

}  // namespace
}  // namespace ada::backend::cpu
