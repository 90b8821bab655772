// Counts which power of two of a tensor's scale each value needs and which it tolerates, and lets
// exact_range's rule choose among them.
#include "scaling/rules/block_range.h"

#include <algorithm>
#include <cmath>

#include "scaling/rules/rules.h"

namespace ada::scaling {
namespace {

// torchao's scales end at e4m3's least normal number, 2^-6, which is then also what any smaller
// scale becomes; from the next power of two on, a stored scale is the wanted one to four bits.
bool IsNormal(const BlockFactor& factor) { return factor.stored >= 0x1p-5f; }

bool IsLost(const BlockGrid& grid, const BlockFactor& factor, float x) {
  return ValueOf(grid, factor, RoundElement(grid, Scaled(grid, factor, x))) == 0;
}

// How often x has to be doubled until it exceeds the largest, from the bits of both magnitudes.
int DoublingsBeyond(std::uint32_t largest, std::uint32_t x) {
  return std::min(static_cast<int>((largest - x) >> 23) + 1, BlockRange::kPowers);
}

}  // namespace

void BlockRange::Add(const BlockRange& other) {
  for (std::size_t i = 0; i < kept_from.size(); ++i) {
    kept_from[i] += other.kept_from[i];
    saturated_from[i] += other.saturated_from[i];
  }
  nonzero += other.nonzero;
}

BlockRangeScale::BlockRangeScale(const BlockFormat& format, bool bf16, float amax)
    : grid_(BlockGridOf(format, bf16)), amax_(amax) {
  if (!(amax > 0) || !std::isfinite(amax)) return;
  for (int k = 0; k < BlockRange::kPowers; ++k) {
    const TensorFactor tensor = TensorFactorOf(grid_, AmaxOf(k));
    if (tensor.bounded) break;
    tensors_.push_back(tensor);
  }
}

float BlockRangeScale::AmaxOf(int k) const { return std::ldexp(amax_, -k); }

// The number of powers if none makes it normal.
int BlockRangeScale::FirstNormal(float block_amax) const {
  int k = 0;
  while (k < std::ssize(tensors_) &&
         !IsNormal(BlockFactorOf(grid_, tensors_[static_cast<std::size_t>(k)], block_amax)))
    ++k;
  return k;
}

// Only where the block's scale is not normal yet are values rounded; those that a normal scale
// keeps are followed down the powers until they are lost.
void BlockRangeScale::Observe(std::span<const float> block, BlockRange& range) const {
  const std::uint32_t top = BitsOf(amax_);
  std::uint32_t largest = 0;
  for (const float x : block) {
    const std::uint32_t bits = MagnitudeBits(x);
    if (bits == 0) continue;
    ++range.nonzero;
    ++range.saturated_from[static_cast<std::size_t>(DoublingsBeyond(top, bits))];
    largest = std::max(largest, bits);
  }
  if (largest == 0) return;
  const float block_amax = OfBits(largest);
  const int normal = FirstNormal(block_amax);
  if (normal == 0) return;
  const auto factor_at = [&](int k) {
    return BlockFactorOf(grid_, tensors_[static_cast<std::size_t>(k)], block_amax);
  };
  std::vector<float> kept;
  const bool reached = normal < std::ssize(tensors_);
  for (const float x : block)
    if (MagnitudeBits(x) != 0 && !(reached && IsLost(grid_, factor_at(normal), x)))
      kept.push_back(x);
  for (int k = normal - 1; k >= 0 && !kept.empty(); --k) {
    const BlockFactor factor = factor_at(k);
    const auto lost = std::erase_if(kept, [&](float x) { return IsLost(grid_, factor, x); });
    const int from = k + 1 < std::ssize(tensors_) ? k + 1 : BlockRange::kPowers;
    range.kept_from[static_cast<std::size_t>(from)] += static_cast<std::int64_t>(lost);
  }
}

// Each value enters exact_range's tail as a magnitude that lies as many powers of two below 1 as
// its tensor's scale has to grow.
int BlockRangeScale::Choose(const BlockRangeRule& rule, const BlockRange& range) const {
  constexpr int kOne = 127;  // the bin of magnitudes from 1 on
  LayerRule exact;
  exact.underflow_target = rule.underflow_target, exact.u_min = 2;
  ExponentTail tail;
  tail.nonzero = range.nonzero;
  for (int k = 1; k <= BlockRange::kPowers; ++k)
    tail.bins[kOne - k] = range.kept_from[static_cast<std::size_t>(k)];
  const int want = std::ilogb(detail::SmallestPower(exact, tail, 1));
  const double allowed = rule.saturation_limit * static_cast<double>(range.nonzero);
  std::int64_t saturated = 0;
  int k = 0;
  while (k < want && k + 1 < std::ssize(tensors_)) {
    saturated += range.saturated_from[static_cast<std::size_t>(k + 1)];
    if (static_cast<double>(saturated) > allowed) break;
    ++k;
  }
  return k;
}

BlockRange RangeOfOperand(const BlockFormat& format, const OperandPlace& place,
                          const std::vector<float>& values, const BlockRangeScale& scale) {
  BlockRange range;
  ForBlocksOfOperand(format, place, values,
                     [&](std::span<const float> block) { scale.Observe(block, range); });
  return range;
}

}  // namespace ada::scaling
