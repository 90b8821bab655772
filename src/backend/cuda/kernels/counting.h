// Rounding with counting: what a thread notes of the values that it rounds, and how a block and
// then the launch's last block bring the notes together. Sums are in double, in an order fixed by
// the launch's shape; all else is whole numbers. A kernel that rounds:
//
//   template <NoteLevel kLevel> struct SomeKernel {
//     static constexpr int kThreads = kNoteThreads, kPhases = 2 + kNotePhases;
//     struct Shared { NoteShared<kLevel> notes; };  struct Own { NoteOwn<kLevel> notes; };
//     template <int kPhase> ADA_HOST_DEVICE void Run(at, shared, own) const {
//       if constexpr (kPhase == 0) BeginNotes(how, at, shared.notes, own.notes);
//       else if constexpr (kPhase == 1) { ... RoundAndCount(how, shared.notes, own.notes, x, i) }
//       else GatherNotes<kPhase - 2>(how, at, shared.notes, own.notes);
//     }
//     Rounding how; ...
//   };
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/bins.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/launch.h"
#include "core/host_device.h"

namespace ada::backend::cuda {

// Whole numbers that are noted. Of the first the largest is kept, of those from kLow on the
// smallest, from kZeros on the sum.
namespace note {
enum Int {
  kMax,    // bits of |x| before rounding
  kHigh,   // of what is stored, in an order of bits: the largest
  kLow,    // the smallest
  kLeast,  // bits of the smallest |x| that is not 0, minus 1
  kMin,    // the same before rounding
  kZeros,  // before rounding, as are the next, which leave zeros out
  kUnderflow,
  kBelowMin,
  kSubnormal,  // after rounding
  kOverflow,
  kInf,
  kNan,
  kAboveEdge,  // after rounding
  kInts
};
enum Sum { kStored, kStoredSquare, kBefore, kSquare, kL1, kSums };
}  // namespace note

ADA_HOST_DEVICE constexpr int NoteInts(NoteLevel level) {
  return level == NoteLevel::kNone      ? 0
         : level == NoteLevel::kLargest ? 1
         : level == NoteLevel::kMoments ? static_cast<int>(note::kMin)
                                        : static_cast<int>(note::kInts);
}
ADA_HOST_DEVICE constexpr int NoteSums(NoteLevel level) {
  return level == NoteLevel::kCounts    ? static_cast<int>(note::kSums)
         : level == NoteLevel::kMoments ? static_cast<int>(note::kBefore)
                                        : 0;
}

inline constexpr int kNoteThreads = 256;

// Smallest values are kept as their complements, so that zeros are where all begins.
struct NoteTotals {
  std::uint32_t ints[note::kInts];
  std::uint32_t bins[LaunchBins::kCount];
  std::uint32_t finished;  // blocks
};

template <NoteLevel kLevel>
struct NoteShared {
  static constexpr bool kCounts = kLevel == NoteLevel::kCounts;
  double sums[NoteSums(kLevel) > 0 ? NoteSums(kLevel) : 1][NoteSums(kLevel) > 0 ? kNoteThreads : 1];
  std::uint32_t ints[NoteInts(kLevel) > 0 ? NoteInts(kLevel) : 1]
                    [NoteInts(kLevel) > 0 ? kNoteThreads : 1];
  std::uint32_t bins[kCounts ? LaunchBins::kCount : 1];
  std::uint32_t is_last;
};
template <NoteLevel kLevel>
struct NoteOwn {
  RoundingNow now;
  std::uint32_t ints[NoteInts(kLevel) > 0 ? NoteInts(kLevel) : 1];
  double sums[NoteSums(kLevel) > 0 ? NoteSums(kLevel) : 1];
  float narrow_sum, narrow_square;
  std::uint32_t edge;  // the largest magnitude that does not lie above the edge
  std::uint32_t divisor;
};

// --- A thread ---

namespace note {

// Fields are added up, kept as the largest or as the smallest.
ADA_HOST_DEVICE inline std::uint32_t Combine(int field, std::uint32_t a, std::uint32_t b) {
  if (field >= kZeros) return a + b;
  return (a > b) == (field < kLow) ? a : b;
}
ADA_HOST_DEVICE inline std::uint32_t Start(int field) {
  return field >= kLow && field < kZeros ? 0xffffffffu : 0;
}
// Bits in the order of numbers.
ADA_HOST_DEVICE inline std::uint32_t Ordered(float x) {
  const std::uint32_t bits = BitsOf(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
ADA_HOST_DEVICE inline float FromOrdered(std::uint32_t key) {
  return OfBits((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}
// Bits of the largest fp32 that is not above `edge` times the format's largest value.
ADA_HOST_DEVICE inline std::uint32_t EdgeBits(double edge, double largest) {
  const double at = edge * largest;
  if (!(at < static_cast<double>(INFINITY))) return kInfinityBits;
  const float near = static_cast<float>(at);
  return BitsOf(near) - (static_cast<double>(near) <= at ? 0 : 1);
}

template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void AddMoments(const Rounding& how, NoteOwn<kLevel>& own, float stored) {
  const std::uint32_t least = MagnitudeBits(stored) - 1;
  own.ints[kLeast] = Combine(kLeast, own.ints[kLeast], least);
  if (stored == stored) {
    const std::uint32_t key = Ordered(stored + 0.0f);  // zeros have no sign
    own.ints[kHigh] = Combine(kHigh, own.ints[kHigh], key);
    own.ints[kLow] = Combine(kLow, own.ints[kLow], key);
  }
  if (how.narrow) {
    own.narrow_sum += stored;
    own.narrow_square += stored * stored;
  } else {
    const double d = stored;
    own.sums[note::kStored] += d;
    own.sums[note::kStoredSquare] += d * d;
  }
}

// Values before and after rounding; x: before any scale of the tensor's own.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void AddCounts(const Rounding& how, NoteShared<kLevel>& shared,
                                      NoteOwn<kLevel>& own, float x, float before, float after) {
  const NumberGrid& grid = how.grid;
  const std::uint32_t u = MagnitudeBits(before), r = MagnitudeBits(after);
  own.ints[kMin] = Combine(kMin, own.ints[kMin], u - 1);
  own.ints[kZeros] += u == 0;
  own.ints[kUnderflow] += u != 0 && u <= kInfinityBits && r == 0;
  own.ints[kBelowMin] += u != 0 && u < grid.below_min;
  own.ints[kSubnormal] += r != 0 && r < grid.min_normal;
  own.ints[kOverflow] += u >= grid.overflow_min && u < kInfinityBits;
  own.ints[kInf] += u == kInfinityBits;
  own.ints[kNan] += u > kInfinityBits;
  own.ints[kAboveEdge] += r > own.edge && r <= kInfinityBits;
  const double d = before;
  own.sums[kBefore] += d;
  own.sums[kSquare] += d * d;
  own.sums[kL1] += d < 0 ? -d : d;
  if (how.bins != nullptr) AtomicAdd(&shared.bins[BinOf(MagnitudeBits(x), own.divisor)], 1u);
}

template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void Add(const Rounding& how, NoteShared<kLevel>& shared,
                                NoteOwn<kLevel>& own, float x, const RoundedValue& v) {
  if constexpr (kLevel >= NoteLevel::kLargest)
    own.ints[kMax] = Combine(kMax, own.ints[kMax], MagnitudeBits(v.before));
  if constexpr (kLevel >= NoteLevel::kMoments) AddMoments(how, own, v.stored);
  if constexpr (kLevel >= NoteLevel::kCounts) AddCounts(how, shared, own, x, v.before, v.after);
}

}  // namespace note

// In a phase before the first value.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void BeginNotes(const Rounding& how, const ThreadIndex& at,
                                       NoteShared<kLevel>& shared, NoteOwn<kLevel>& own) {
  own.now = Now(how);
  if (how.scale_from != nullptr && at.block == 0 && at.thread == 0) *how.scale_to = *how.scale_from;
  for (int f = 0; f < NoteInts(kLevel); ++f) own.ints[f] = note::Start(f);
  for (int f = 0; f < NoteSums(kLevel); ++f) own.sums[f] = 0;
  own.narrow_sum = own.narrow_square = 0;
  if constexpr (kLevel == NoteLevel::kCounts) {
    own.edge = note::EdgeBits(how.pass->edge, how.grid.largest_value);
    own.divisor = how.carried != nullptr ? Split(*how.carried).mantissa : 0;
    for (int k = at.thread; k < LaunchBins::kCount; k += kNoteThreads) shared.bins[k] = 0;
  }
}

// Rounds x, value i of the tensor, and notes it; returns what is to be stored.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline float RoundAndCount(const Rounding& how, NoteShared<kLevel>& shared,
                                           NoteOwn<kLevel>& own, float x, std::int64_t i) {
  const std::uint32_t word = how.stochastic ? RandomWord(own.now, i) : 0;
  const RoundedValue v = RoundWith(how, own.now, x, word);
  note::Add(how, shared, own, x, v);
  return v.stored;
}
// Values i .. i + 3, where 4 divides i: their random words are drawn together.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline FourFloats RoundAndCountFour(const Rounding& how, NoteShared<kLevel>& shared,
                                                    NoteOwn<kLevel>& own, const FourFloats& x,
                                                    std::int64_t i) {
  std::uint32_t words[4] = {};
  if (how.stochastic) {
    const auto four = Philox(own.now.key, own.now.draw, static_cast<std::uint64_t>(i) / 4);
    for (unsigned k = 0; k < 4; ++k) words[k] = four[k];
  }
  FourFloats stored;
  for (int k = 0; k < 4; ++k) {
    const RoundedValue v = RoundWith(how, own.now, x.of[k], words[k]);
    note::Add(how, shared, own, x.of[k], v);
    stored.of[k] = v.stored;
  }
  return stored;
}
// RoundingStats a value that was rounded and stored before.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void CountStored(const Rounding& how, NoteShared<kLevel>& shared,
                                        NoteOwn<kLevel>& own, float stored) {
  note::Add(how, shared, own, stored, RoundedAs(how, own.now, stored));
}

}  // namespace ada::backend::cuda

#include "backend/cuda/kernels/merge.h"
