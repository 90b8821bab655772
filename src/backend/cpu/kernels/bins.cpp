// Counting values by binary exponent; see bins.h.
#include "backend/cpu/kernels/bins.h"

#include <algorithm>

#include "backend/cpu/kernels/count_lanes.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kQuickPlaces = 4;  // of the sums: their carry is that of 16 words

// Adds the next 2^(kPlace + 1) words to places 0 to kPlace of sums; returns the carry.
template <int kPlace, class Next>
ADA_INLINE Unsigned AddNext(Unsigned (&places)[kQuickPlaces], Next& next) {
  Unsigned first, second;
  if constexpr (kPlace == 0)
    first = next(), second = next();
  else
    first = AddNext<kPlace - 1>(places, next), second = AddNext<kPlace - 1>(places, next);
  return FullAdd(places[kPlace], first, second);
}

// Lane by lane: the first half of the lanes of `count` places becomes the sum of both halves, which
// is one place longer.
template <int kHalf>
ADA_INLINE void AddHalves(std::uint32_t (*places)[kLanes], int count) {
  std::uint32_t carry[kHalf] = {};
  for (int p = 0; p < count; ++p)
    for (int k = 0; k < kHalf; ++k) {
      const std::uint32_t a = places[p][k], b = places[p][k + kHalf], one = a ^ b;
      places[p][k] = one ^ carry[k];
      carry[k] = (a & b) | (one & carry[k]);
    }
  std::memcpy(places[count], carry, sizeof carry);
}

}  // namespace

// Bins are cleared here, so that one of no values is all zeros.
BinTally::BinTally(const Rounding& rounding) : bins_(rounding.bins) {
  if (bins_ == nullptr) return;
  mantissa_ = rounding.bins_mantissa;
  *bins_ = BlockBins{};
}

// Usually a run is complete and its values are within 32 exponents: it is counted in place. Others
// are copied, because values outside of these exponents are removed from the copy.
void BinTally::Add(const float* x, int n, const std::uint32_t* smallest, std::uint32_t largest) {
  ChooseLowest(largest);
  for (int first = 0; first < n; first += kRun, ++smallest) {
    // All values between the smallest and the largest have a bit if these two have one.
    const bool all = (*smallest - offset()) >> 23 < kBits && largest < kInfinityBits;
    if (all && n - first >= kRun) {
      AddWords(x + first);
      continue;
    }
    alignas(64) float values[kRun] = {};
    std::memcpy(values, x + first,
                sizeof(float) * static_cast<std::size_t>(std::min(kRun, n - first)));
    if (!all) TakeOthers(values);
    AddWords(values);
  }
}

// Bits reach one exponent beyond the largest, where there is one, unless the last ones serve as
// well.
// Changing the window empties the sums, which costs more than a window that is a little too high.
void BinTally::ChooseLowest(std::uint32_t largest) {
  constexpr int kFinite = 254;  // the largest exponent's field; inf and NaN have no bit
  const int top = std::min(static_cast<int>(largest >> 23), kFinite);
  const int best = std::max(std::min(top + 1, kFinite) + 1 - kBits, 1);
  if (top - lowest_ < kBits && lowest_ <= best + kBits / 4) return;
  Empty();
  lowest_ = best;
}

// Counts what has no bit one by one (subnormals, inf, NaN, exponents too far down) and puts zeros
// in its place.
void BinTally::TakeOthers(float* values) {
  const std::uint32_t offset = this->offset();
  for (int i = 0; i < kRun; i += kLanes) {
    const U u = Magnitude(LoadF(values + i));
    const I bit = (I)((u - offset) >> 23);
    const I none = (bit >= kBits) | ((I)u >= static_cast<std::int32_t>(kInfinityBits));
    unsigned others = LaneBits(none & (I)(u != 0u));
    for (; others != 0; others &= others - 1) {
      float& value = values[i + __builtin_ctz(others)];
      TakeOther(BitsOf(value) & 0x7fffffffu);
      value = 0;
    }
  }
}
void BinTally::TakeOther(std::uint32_t u) {
  if (u > kInfinityBits)
    ++bins_->nan;
  else if (u == kInfinityBits)
    ++bins_->inf;
  else
    ++bins_->counts[ExponentOver(u, mantissa_) - BlockBins::kLowest];
}

// The words of kRun values; zeros have none of these bits.
// The first four places of the sums are added for all 16 words at once, as a tree of adders; the
// carry then ripples through the others.
void BinTally::AddWords(const float* values) {
  constexpr int kWords = kRun / kLanes;
  if (words_ + kWords >= 1 << kPlaces) Empty();
  words_ += kWords;
  const std::uint32_t offset = this->offset();
  for (int column = 0; column < kLanes; column += kWidth) {
    const float* at = values + column;
    const auto next = [&]() __attribute__((always_inline)) {
      const Unsigned word = BitAt(((Unsigned)Magnitudes(at) - offset) >> 23);
      at += kLanes;
      return word;
    };
    Unsigned places[kQuickPlaces];
#pragma GCC unroll 4
    for (int p = 0; p < kQuickPlaces; ++p) places[p] = LoadAs<Unsigned>(sums_[p] + column);
    Unsigned carry = AddNext<kQuickPlaces - 1>(places, next);
#pragma GCC unroll 4
    for (int p = 0; p < kQuickPlaces; ++p)
      std::memcpy(sums_[p] + column, &places[p], sizeof places[p]);
#pragma GCC unroll 8
    for (int p = kQuickPlaces; p < kPlaces; ++p) {
      const auto place = LoadAs<Unsigned>(sums_[p] + column), sum = place ^ carry;
      std::memcpy(sums_[p] + column, &sum, sizeof sum);
      carry &= place;
    }
  }
}

// Adds the sums to the bins.
// Halves of ever fewer lanes are added up bit by bit. Then place p of a bit stands for 2^p.
void BinTally::Empty() {
  if (words_ == 0) return;
  AddHalves<8>(sums_, kPlaces);
  AddHalves<4>(sums_, kPlaces + 1);
  AddHalves<2>(sums_, kPlaces + 2);
  AddHalves<1>(sums_, kPlaces + 3);
  constexpr int kHalves = kBits / kLanes;
  const U own = FillU(1) << (U)LaneNumbers();  // bit k in lane k
  U counts[kHalves]{};
  for (int p = 0; p < kPlacesOfAll; ++p)
    for (int half = 0; half < kHalves; ++half) {
      const U bit = FillU(sums_[p][0] >> (half * kLanes)) & own;
      counts[half] += (U)(bit != 0u) & FillU(1u << p);
    }
  std::uint32_t found[kBits];
  for (int half = 0; half < kHalves; ++half) StoreParts(found + half * kLanes, counts[half]);
  std::uint32_t* const bins = bins_->counts + (lowest_ - 127 - BlockBins::kLowest);
  for (int bit = 0; bit < kBits; ++bit) bins[bit] += found[bit];
  std::memset(sums_, 0, sizeof sums_);
  words_ = 0;
}

// Zeros are what nothing else has counted; zeros that filled up vectors never were.
void BinTally::Finish(std::int64_t values) {
  if (bins_ == nullptr) return;
  Empty();
  auto others = static_cast<std::uint32_t>(bins_->inf + bins_->nan);
  for (const std::uint32_t count : bins_->counts) others += count;
  bins_->zeros = static_cast<std::uint32_t>(values) - others;
}

}  // namespace ada::backend::cpu::ADA_ISA
