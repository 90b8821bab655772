// Counting values by binary exponent; see bins.h.
#include "backend/cpu/kernels/bins.h"

#include <algorithm>

namespace ada::backend::cpu::ADA_ISA {

BinTally::BinTally(const Rounding& rounding) : bins_(rounding.bins) {
  if (bins_ == nullptr) return;
  std::uint32_t bits;
  std::memcpy(&bits, &rounding.bins_divisor, sizeof bits);
  mantissa_ = bits & 0x7fffffu;
  *bins_ = BlockBins{};
  std::memset(tables_, 0, sizeof tables_);
}

void BinTally::Add(const float* x, int n) {
  if (bins_ == nullptr) return;
  constexpr int kRun = 16 * kLanes;
  alignas(64) std::uint32_t fields[kRun];
  for (int first = 0; first < n; first += kRun) {
    const int run = std::min(kRun, n - first);
    // A magnitude minus the divisor's mantissa takes one off the exponent where that is due.
    for (int i = 0; i < run; i += kLanes) {
      U u = Magnitude(LoadF(x + first + i));
      // Sign bits: of subnormals (u - 2^23 is below 0, u - 1 is not), of inf and NaN (u + 2^23).
      const U signs = ((u - 0x800000u) & ~(u - 1u)) | (u + 0x800000u);
      const unsigned special = LaneBits((I)signs >> 31);
      if (special != 0) u = TakeSpecial(u, special);
      u = (u - mantissa_) >> 23;
      std::memcpy(fields + i, &u, sizeof u);
    }
    for (const std::uint32_t *at = fields, *end = at + run; at != end; at += 4) {
      ++tables_[0][at[0]];
      ++tables_[1][at[1]];
      ++tables_[2][at[2]];
      ++tables_[3][at[3]];
    }
  }
}

// Counts the lanes whose bit is set: subnormals, inf and NaN; returns the others.
U BinTally::TakeSpecial(U u, unsigned lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    const std::uint32_t x = u[lane];
    u[lane] = 0;
    if (x > 0x7f800000u) {
      ++bins_->nan;
    } else if (x == 0x7f800000u) {
      ++bins_->inf;
    } else {
      const int top = 31 - __builtin_clz(x);  // x * 2^-149 = 2^(top - 149) * 1.mantissa
      const std::uint32_t mantissa = (x << (23 - top)) & 0x7fffffu;
      ++bins_->counts[top - 149 - (mantissa < mantissa_ ? 1 : 0) - BlockBins::kLowest];
    }
  }
  return u;
}

void BinTally::Finish(std::int64_t values) {
  if (bins_ == nullptr) return;
  // Field 0 is that of zeros, unless the divisor took one off field 1.
  for (int field = mantissa_ == 0 ? 1 : 0; field < 255; ++field)
    for (const auto& table : tables_)
      bins_->counts[field - 127 - BlockBins::kLowest] += table[field];
  auto others = static_cast<std::uint32_t>(bins_->inf + bins_->nan);
  for (const std::uint32_t count : bins_->counts) others += count;
  bins_->zeros = static_cast<std::uint32_t>(values) - others;
}

}  // namespace ada::backend::cpu::ADA_ISA
