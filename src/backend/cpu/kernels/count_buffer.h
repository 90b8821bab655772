// Values that wait to be counted, and what is added up of them lane by lane: every lane adds its
// own values in their order, so that all instruction sets come to the same sums.
#pragma once
#include <algorithm>
#include <limits>

#include "backend/cpu/kernels/bins.h"
#include "backend/cpu/kernels/count_lanes.h"

namespace ada::backend::cpu::ADA_ISA {

// A buffer that fits the first-level cache.
struct CountBuffer {
  // A loop may keep kLoop vectors at a time; short ones share the buffer.
  static constexpr int kLoop = 256, kWait = 64;
  static constexpr int kSize = (kLoop + kWait) * kLanes;
  static constexpr int kRun = BinTally::kRun;
  alignas(64) float x[kSize];
  // Where rounding is not just a function of x: scaled, before and after. Else unused.
  alignas(64) float before[kSize], after[kSize];
};

// The extremes of one filling of the buffer, as bits of magnitudes.
struct BufferExtremes {
  std::uint32_t min[CountBuffer::kSize / CountBuffer::kRun];  // of each kRun values, zeros left out
  std::uint32_t max = 0;
  std::int64_t zeros = 0;
};

// Sums of x, x^2 and |x| of two vectors of doubles.
struct DoubleSums {
  Doubles sum[2]{}, square[2]{}, l1[2]{};

  ADA_INLINE void Add(int half, Doubles d) {
    sum[half] = AddByProduct(sum[half], d);
    square[half] = AddSquare(square[half], d);
    l1[half] += (Doubles)((Longs)d & std::numeric_limits<std::int64_t>::max());
  }
};

// Sums of all values and extremes of those in the buffer. A rounding loop works on a copy of Lanes,
// which stays in registers, and calls Add for each vector that it keeps.
class BufferSums {
 public:
#if defined(__AVX512F__)

  // The rounding loop adds while it waits for memory. It takes zeros for the smallest; a run that
  // has some is looked at once more.
  struct Lanes {
    DoubleSums sums;
    Ints min = ExtremeLanes{}.min, max{};
    Ints* run_min = nullptr;

    // x: sixteen values in the buffer. end: the position after them.
    ADA_INLINE void Add(const float* x, std::int64_t end) {
      const Ints u = Magnitudes(x);
      min = u < min ? u : min;
      max = u > max ? u : max;
      for (int half = 0; half < 2; ++half) {
        // Converting from memory takes one operation, from the halves of a register three.
        __m512d d;
        asm("vcvtps2pd %1, %0" : "=v"(d) : "m"(*reinterpret_cast<const float(*)[8]>(x + half * 8)));
        sums.Add(half, (Doubles)d);
      }
      if (end % CountBuffer::kRun == 0) {
        run_min[end / CountBuffer::kRun - 1] = min;
        min = ExtremeLanes{}.min;
      }
    }
  };
  BufferSums() { lanes.run_min = run_min_; }

  BufferExtremes TakeExtremes(const float* x, int n) {
    constexpr int kRun = CountBuffer::kRun;
    BufferExtremes all;
    if (n % kRun != 0) run_min_[n / kRun] = lanes.min;
    for (int first = 0; first < n; first += kRun) {
      std::int32_t min = Smallest(run_min_[first / kRun]);
      if (min == 0) {
        ExtremeLanes extremes;
        const int end = std::min(first + kRun, n);
        for (int i = first; i < end; i += kWidth) extremes.Add(Magnitudes(x + i));
        min = Smallest(extremes.min);
        all.zeros += Total(extremes.zeros) + end - first;  // the others were taken off
      }
      all.min[first / kRun] = static_cast<std::uint32_t>(min);
    }
    all.max = static_cast<std::uint32_t>(-Smallest(-lanes.max));
    lanes.min = ExtremeLanes{}.min, lanes.max = Ints{};
    return all;
  }
  void Store(double* sum, double* square, double* l1) const {
    std::memcpy(sum, lanes.sums.sum, sizeof lanes.sums.sum);
    std::memcpy(square, lanes.sums.square, sizeof lanes.sums.square);
    std::memcpy(l1, lanes.sums.l1, sizeof lanes.sums.l1);
  }

  Lanes lanes;

 private:
  Ints run_min_[CountBuffer::kSize / CountBuffer::kRun];

#else

  // A rounding loop has no registers left for sums: a column of lanes as wide as the registers at a
  // time is added down all kept vectors.
  struct Lanes {
    ADA_INLINE void Add(const float*, std::int64_t) {}
  };

  BufferExtremes TakeExtremes(const float* x, int n) {
    constexpr int kRun = CountBuffer::kRun, kHalf = kWidth / 2;
    BufferExtremes all;
    for (int column = 0; column < kLanes / kWidth; ++column) {
      DoubleSums sums = sums_[column];
      ExtremeLanes extremes;
      for (int first = 0; first < n; first += kRun) {
        extremes.min = ExtremeLanes{}.min;
        const int end = std::min(first + kRun, n);
        for (int i = first + column * kWidth; i < end; i += kLanes) {
          extremes.Add(Magnitudes(x + i));
          for (int half = 0; half < 2; ++half)
            sums.Add(half, ToDoubles(LoadAs<Half>(x + i + half * kHalf)));
        }
        std::uint32_t& min = all.min[first / kRun];
        const auto least = static_cast<std::uint32_t>(Smallest(extremes.min));
        min = column == 0 || least < min ? least : min;
      }
      sums_[column] = sums;
      all.max = std::max(all.max, static_cast<std::uint32_t>(-Smallest(-extremes.max)));
      all.zeros += Total(extremes.zeros);
    }
    return all;
  }
  void Store(double* sum, double* square, double* l1) const {
    for (int column = 0; column < kLanes / kWidth; ++column) {
      std::memcpy(sum + column * kWidth, sums_[column].sum, sizeof sums_[column].sum);
      std::memcpy(square + column * kWidth, sums_[column].square, sizeof sums_[column].square);
      std::memcpy(l1 + column * kWidth, sums_[column].l1, sizeof sums_[column].l1);
    }
  }

  [[no_unique_address]] Lanes lanes;

 private:
  DoubleSums sums_[kLanes / kWidth];

#endif
};

}  // namespace ada::backend::cpu::ADA_ISA
