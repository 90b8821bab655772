// How a kernel rounds the values of one tensor: a plain struct that it takes as an argument, and
// what of it changes from step to step, read from backend memory.
#pragma once
#include <array>
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "number/host_device.h"
#include "number/random.h"
#include "number/stats.h"

namespace ada::backend::cuda {

// The Pass of the work that runs, in backend memory: what changes from step to step cannot stand in
// a kernel's arguments, since launches are recorded once and replayed. Ops get a pointer to it from
// their Context.
// Uploaded before each pass; a recording reads it anew whenever it is replayed.
struct PassValues {
  std::uint64_t seed = 0, draw = 0;
  std::int64_t loss_terms = 0;
  double edge = 0;
  float loss_scale = 1;
  float share = 1;
  friend bool operator==(const PassValues&, const PassValues&) = default;
};

// What is measured while values are rounded, each with all before it. A template argument of
// kernels.
enum class StatsLevel : std::uint8_t { kNone, kLargest, kMoments, kCounts };

// Sums over the blocks of the launch that runs; zero between launches.
struct StatsTotals;

// Made by RoundingStats::For. A default-constructed one leaves fp32 values unchanged and measures
// nothing. The fields up to scale_to define the rounding, those after it what is measured and where
// it is stored. Copied into kernels' arguments.
struct Rounding {
  NumberGrid grid;
  bool stochastic = false;
  std::uint64_t stream = 0;
  std::int64_t first = 0;            // value 0 of the call, in the batch of all processes
  const PassValues* pass = nullptr;  // with `stochastic`, and to count
  // The tensor's scale; null: 1. Values are multiplied by it before and divided by it after
  // rounding. What rounding does is counted of the scaled values; zeros, inf, NaN, extremes and
  // sums are of the values without it, moments of what is stored.
  const float* per_tensor_scale = nullptr;
  // A gradient's scale that is passed on: *scale_to = *scale_from. Null: it is set elsewhere.
  const float* scale_from = nullptr;
  float* scale_to = nullptr;

  // Where the statistics go (rounding/rounding_stats.h).
  std::int64_t values = 0;  // of the whole launch
  StatsTotals* totals = nullptr;
  double* block_sums = nullptr;  // [kinds of sums][blocks]
  TensorStats* stats = nullptr;
  TensorMoments* moments = nullptr;
  ExponentBins* bins = nullptr;
  const float* carried = nullptr;  // for bins: the S that values carry; null: 1
  bool full = false;               // every field of `stats`
  bool size_only = false;          // of the moments only mean_square and the largest magnitude
  bool narrow = false;             // squares stay within fp32's range
};

// What of a Rounding a thread reads once.
struct RoundingNow {
  float scale;
  std::uint64_t key, draw;
};
ADA_HOST_DEVICE inline RoundingNow Now(const Rounding& how) {
  RoundingNow now;
  now.scale = how.per_tensor_scale != nullptr ? *how.per_tensor_scale : 1;
  now.key = now.draw = 0;
  if (how.stochastic) now.key = how.pass->seed ^ how.stream, now.draw = how.pass->draw;
  return now;
}

// A value, scaled, before and after rounding, and as it is stored.
struct RoundedValue {
  float before, after, stored;
};
// Word i of the tensor's stream, the same as on a CPU: blocks of Philox have four. Words are chosen
// by comparing: an index that is not known when the kernel is compiled would put the block into
// memory.
ADA_HOST_DEVICE inline std::uint32_t WordOf(const std::array<std::uint32_t, 4>& block, unsigned k) {
  const std::uint32_t low = k == 0 ? block[0] : block[1], high = k == 2 ? block[2] : block[3];
  return k < 2 ? low : high;
}
ADA_HOST_DEVICE inline std::uint32_t RandomWord(std::uint64_t key, std::uint64_t draw,
                                                std::int64_t i) {
  const auto at = static_cast<std::uint64_t>(i);
  return WordOf(Philox(key, draw, at / 4), static_cast<unsigned>(at % 4));
}
// Words i .. i + 3, drawn together if 4 divides i.
struct Vec4Words {
  std::uint32_t of[4];
};
ADA_HOST_DEVICE inline Vec4Words RandomWords(std::uint64_t key, std::uint64_t draw,
                                             std::int64_t i) {
  const auto block = static_cast<std::uint64_t>(i) / 4;
  const auto from = static_cast<unsigned>(i % 4);
  const auto words = Philox(key, draw, block);
  if (from == 0) return {words[0], words[1], words[2], words[3]};
  const auto more = Philox(key, draw, block + 1);
  Vec4Words four;
  ADA_UNROLL
  for (unsigned k = 0; k < 4; ++k)
    four.of[k] = k + from < 4 ? WordOf(words, k + from) : WordOf(more, k + from - 4);
  return four;
}
// Value i of the tensor, with its random word.
// `word` is only read where rounding is stochastic.
ADA_HOST_DEVICE inline RoundedValue RoundWith(const Rounding& how, const RoundingNow& now, float x,
                                              std::uint32_t word) {
  const bool scaled = now.scale != 1;
  if (scaled) x = x * now.scale;
  const float r =
      how.stochastic ? RoundRandomlyToGrid(how.grid, x, word) : RoundToGrid(how.grid, x);
  return {x, r, scaled ? r / now.scale : r};
}
// The same of values that were stored before: the division by the scale undone, to the very value.
ADA_HOST_DEVICE inline RoundedValue RoundedAs(const Rounding& how, const RoundingNow& now,
                                              float stored) {
  const float r = now.scale == 1 ? stored : RoundToGrid(how.grid, stored * now.scale);
  return {r, r, stored};
}

}  // namespace ada::backend::cuda
