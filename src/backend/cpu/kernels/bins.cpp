// Counting values by binary exponent; see bins.h.
#include "backend/cpu/kernels/bins.h"

#include <algorithm>

namespace ada::backend::cpu::ADA_ISA {

BinTally::BinTally(const Rounding& rounding) : bins_(rounding.bins) {
  if (bins_ == nullptr) return;
  mantissa_ = rounding.bins_mantissa;
  *bins_ = BlockBins{};
  std::memset(pairs_, 0, sizeof pairs_);
}

void BinTally::Add(const float* x, int n, std::uint32_t smallest, std::uint32_t largest) {
  constexpr int kFinite = 254;  // the largest exponent's field; inf and NaN have no code
  ChooseTop(std::min(static_cast<int>(largest >> 23), kFinite));
  const bool plain = smallest >= 0x800000u && largest < 0x7f800000u &&
                     static_cast<int>((smallest - mantissa_) >> 23) > top_ - kFar;
  plain ? AddPairs<true>(x, n) : AddPairs<false>(x, n);
}

template <bool kPlain>
void BinTally::AddPairs(const float* x, int n) {
  constexpr int kRun = 16 * kLanes;
  alignas(64) std::uint64_t pairs[kRun / 2];
  for (int first = 0; first < n; first += kRun) {
    const int run = std::min(kRun, n - first);
    for (int i = 0; i < run; i += kLanes) {
      U u = Magnitude(LoadF(x + first + i));
      if constexpr (!kPlain) u = TakeOthers(u);
      StoreParts(pairs + i / 2, PairsOf(u));
    }
    for (const std::uint64_t *at = pairs, *end = at + run / 2; at != end; at += 4) {
      ++pairs_[0][at[0]];
      ++pairs_[1][at[1]];
      ++pairs_[0][at[2]];
      ++pairs_[1][at[3]];
    }
  }
}

// Codes reach from the largest exponent down: it is that of these values, unless the last ones'
// serves as well.
void BinTally::ChooseTop(int top) {
  if (top <= top_ && top_ - top < kFar / 4) return;
  Fold();
  top_ = top;
}

// Codes of neighbours, 5 bits each: how far the exponent lies below the top; of zeros kFar, or one
// that Fold passes over.
ADA_INLINE BinTally::Pairs BinTally::PairsOf(U u) const {
  // A magnitude minus the divisor's mantissa takes one off the exponent where that is due.
  const U code = static_cast<std::uint32_t>(top_) - ((u - mantissa_) >> 23);
  const auto pairs = (Pairs)MinBits(code, FillU(kFar));
  return (pairs | pairs >> 27) & 1023u;
}

// Counts one by one what has no code: subnormals, inf, NaN, exponents too far down. Returns the
// others, and zeros instead of these.
U BinTally::TakeOthers(U u) {
  // Sign bits: of subnormals (u - 2^23 is below 0, u - 1 is not), of inf and NaN (u + 2^23).
  const U signs = ((u - 0x800000u) & ~(u - 1u)) | (u + 0x800000u);
  const unsigned special = LaneBits((I)signs >> 31);
  if (special != 0) u = TakeSpecial(u, special);
  const I fields = (I)((u - mantissa_) >> 23);
  unsigned far = LaneBits((fields <= top_ - kFar) & (I)(u != 0u));
  for (; far != 0; far &= far - 1) {
    const int lane = __builtin_ctz(far);
    ++bins_->counts[fields[lane] - 127 - BlockBins::kLowest];
    SetLane(u, lane, 0);
  }
  return u;
}

// Adds what the pairs hold to the bins and empties them.
void BinTally::Fold() {
  U first[2]{};  // by the code of the first of a pair
  const auto add = [this](int code, std::uint32_t count) {
    const int field = top_ - code;  // 0: of zeros, unless the divisor took one off field 1
    if (field < (mantissa_ == 0 ? 1 : 0)) return;
    bins_->counts[field - 127 - BlockBins::kLowest] += count;
  };
  for (int second = 0; second <= kFar; ++second) {
    U both{};
    for (int k = 0; k < 2; ++k) {
      U counts{};
      for (const auto& table : pairs_)
        counts += (U)LoadF(reinterpret_cast<const float*>(table + 32 * second + 16 * k));
      first[k] += counts;
      both += counts;
    }
    std::uint32_t sum = 0;
    for (int lane = 0; lane < kLanes; ++lane) sum += both[lane];
    if (second < kFar) add(second, sum);
  }
  for (int code = 0; code < kFar; ++code) add(code, first[code / 16][code % 16]);
  std::memset(pairs_, 0, sizeof pairs_);
}

// Counts the lanes whose bit is set: subnormals, inf and NaN; returns the others.
U BinTally::TakeSpecial(U u, unsigned lanes) {
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    const std::uint32_t x = u[lane];
    SetLane(u, lane, 0);
    if (x > 0x7f800000u) {
      ++bins_->nan;
    } else if (x == 0x7f800000u) {
      ++bins_->inf;
    } else {
      ++bins_->counts[ExponentOver(x, mantissa_) - BlockBins::kLowest];
    }
  }
  return u;
}

void BinTally::Finish(std::int64_t values) {
  if (bins_ == nullptr) return;
  Fold();
  auto others = static_cast<std::uint32_t>(bins_->inf + bins_->nan);
  for (const std::uint32_t count : bins_->counts) others += count;
  bins_->zeros = static_cast<std::uint32_t>(values) - others;
}

}  // namespace ada::backend::cpu::ADA_ISA
