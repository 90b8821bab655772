// Gradients of several ranks, made up, and their sums by the definition.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "number/number_format.h"
#include "number/stats.h"

namespace ada::testing {

using Values = std::vector<std::vector<float>>;  // by gradient

inline const std::vector<std::int64_t> kSizes = {1, 700, 33, 5, 1024, 16, 3};

// Magnitudes from 2^-30 to 2^3: sums depend on their order, and small ones vanish in fp16.
inline Values MadeUp(int rank, int round) {
  std::mt19937 random(static_cast<unsigned>(100 * rank + round));
  Values all;
  for (const std::int64_t size : kSizes) {
    std::vector<float>& values = all.emplace_back();
    for (std::int64_t i = 0; i < size; ++i) {
      const int exponent = static_cast<int>(random() % 34) - 30;
      values.push_back(std::ldexp(static_cast<float>(random() % 2001) / 1000.0f - 1, exponent));
    }
  }
  return all;
}

// A ring's sums, by the definition: piece k of all values goes from rank k + 1 around to rank k.
// Each partial sum is rounded to `format`.
inline Values ExpectedOfRing(int ranks, int round, const NumberFormat& format) {
  std::vector<Values> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(MadeUp(rank, round));
  std::int64_t all = 0, at = 0;
  for (const std::int64_t size : kSizes) all += size;
  const std::int64_t lines = (all + 15) / 16, piece = (lines + ranks - 1) / ranks * 16;
  Values total(kSizes.size());
  for (std::size_t g = 0; g < kSizes.size(); ++g)
    for (std::size_t i = 0; i < static_cast<std::size_t>(kSizes[g]); ++i, ++at) {
      float sum = 0;
      for (int hop = 1; hop <= ranks; ++hop)
        sum = RoundTo(format,
                      sum + parts[static_cast<std::size_t>((at / piece + hop) % ranks)][g][i]);
      total[g].push_back(sum);
    }
  return total;
}

// The definition, value by value.
inline Values Expected(int ranks, int round, const NumberFormat& format, float factor) {
  Values total;
  for (int rank = 0; rank < ranks; ++rank) {
    const Values part = MadeUp(rank, round);
    if (rank == 0) total = Values(part.size());
    for (std::size_t g = 0; g < part.size(); ++g) {
      total[g].resize(part[g].size());
      for (std::size_t i = 0; i < part[g].size(); ++i)
        total[g][i] += RoundTo(format, part[g][i] * factor);
    }
  }
  for (auto& values : total)
    for (float& value : values) value = RoundTo(format, value) / factor;
  return total;
}

// What rounding loses of gradient `g` on its way in the last of those rounds: of each rank's part,
// and of the sum.
inline TensorStats ExpectedLoss(int ranks, int round, const NumberFormat& format, float factor,
                                std::size_t g) {
  TensorStats naive;
  std::vector<float> sum(static_cast<std::size_t>(kSizes[g]));
  const auto count = [&](float value) {
    const float rounded = RoundTo(format, value);
    ++naive.numel;
    naive.zeros_before += value == 0;
    naive.underflow += value != 0 && rounded == 0;
    naive.overflow += std::isfinite(value) && !std::isfinite(rounded);
    naive.subnormal +=
        rounded != 0 && static_cast<double>(std::fabs(rounded)) < format.smallest_normal();
    return rounded;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const Values part = MadeUp(rank, round);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += count(part[g][i] * factor);
  }
  for (const float value : sum) count(value);
  return naive;
}

}  // namespace ada::testing
