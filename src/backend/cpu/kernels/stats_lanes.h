// What is measured of values lane by lane: sums, extremes, the largest magnitude.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels/modes.h"

namespace ada::backend::cpu::ADA_ISA {

// Lane by lane, from memory: the compiler's own way of taking lanes out of registers is slow.
ADA_INLINE double SumLanes(const D& v) {
  double lanes[8], sum = 0;
  StoreParts(lanes, v);
  asm("" : "+m"(lanes));
  for (int i = 0; i < 8; ++i) sum += lanes[i];
  return sum;
}
ADA_INLINE double SumLanes(const F& v) {
  float lanes[kLanes];
  double sum = 0;
  StoreF(lanes, v);
  asm("" : "+m"(lanes));
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

// Two running sums of 16 lanes: fp32 where values are known to stay in range (emptied into double
// by Flush), fp64 otherwise.
// Values in fp16 memory are the only ones whose squares stay within fp32 for as long as a loop
// goes.
template <bool kWide>
struct Sums;
template <>
struct Sums<false> {
  F sum{}, square{};
  ADA_INLINE void Add(F x) {
    sum += x;
    AddSquare(x);
  }
  ADA_INLINE void AddSquare(F x) { square += x * x; }
  void Flush(double& s, double& q) {
    s += SumLanes(sum);
    q += SumLanes(square);
    *this = Sums{};
  }
};
template <>
struct Sums<true> {
  D sum[2]{}, square[2]{};
  ADA_INLINE void Add(F x) {
    D d[2];
    ToDoubles(x, d);
    for (int k = 0; k < 2; ++k) sum[k] += d[k], square[k] += d[k] * d[k];
  }
  ADA_INLINE void AddSquare(F x) {
    D d[2];
    ToDoubles(x, d);
    for (int k = 0; k < 2; ++k) square[k] += d[k] * d[k];
  }
  void Flush(double& s, double& q) {
    s += SumLanes(sum[0]) + SumLanes(sum[1]);
    q += SumLanes(square[0]) + SumLanes(square[1]);
    *this = Sums{};
  }
};

// Which moments are taken: kSize: the sum of squares and the largest magnitude.
enum class Moments : std::uint8_t { kNone, kSize, kAll };

// What is measured of values lane by lane. kTail: only the lanes in `valid` are values; the others
// are zero.
template <class Mode, Moments kMoments>
struct MomentLanes {};
template <class Mode>
struct MomentLanes<Mode, Moments::kAll> {  // of stored values, but their sums
  U least = ~U{};
  F low = Fill(__builtin_inff()), high = Fill(-__builtin_inff());

  template <bool kTail>
  ADA_INLINE void Add(F r, I valid) {
    least = MinBits(least, Magnitude(r) - 1u);
    if constexpr (kTail) {
      low = Select(valid, Min(low, r), low);
      high = Select(valid, Max(high, r), high);
    } else {
      low = Min(low, r);
      high = Max(high, r);
    }
  }
};
// Where the stored values follow from those before rounding, so does the largest magnitude.
template <class Mode>
struct MomentLanes<Mode, Moments::kSize> {
  static constexpr bool kFollows = Mode::kKeepsSigns;
  U most{};
  template <bool kTail>
  ADA_INLINE void Add(F r, I) {
    if constexpr (!kFollows) most = MaxBits(most, Magnitude(r));
  }
};

// kMax: the largest magnitude before rounding is wanted; where all is counted, the tally finds it.
template <class Mode, bool kMax, Moments kMoments>
struct StatsLanes {
  U max{};
  [[no_unique_address]] MomentLanes<Mode, kMoments> moments;

  template <bool kTail>
  ADA_INLINE void Add(F x, F stored, I valid) {
    if constexpr (kMax) max = MaxBits(max, Magnitude(x));
    if constexpr (kMoments != Moments::kNone) moments.template Add<kTail>(stored, valid);
  }
};

// The sums of a loop's values: one for each column of channels that it walks down.
template <class Mode, Moments kMoments, int kColumns>
struct LoopSums {
  Sums<Mode::kWide> columns[kColumns];
  ADA_INLINE void Add(F r, int column) {
    if constexpr (kMoments == Moments::kAll)
      columns[column].Add(r);
    else
      columns[column].AddSquare(r);
  }
};
template <class Mode, int kColumns>
struct LoopSums<Mode, Moments::kNone, kColumns> {
  ADA_INLINE void Add(F, int) {}
};

}  // namespace ada::backend::cpu::ADA_ISA
