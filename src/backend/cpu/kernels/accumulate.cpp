// Sums as an accumulator makes them, sixteen outputs at a time. One group of products:
//
//   exponents of a and b --> the largest E of each output, with that of its sum so far
//   a * b * 2^(F - E)    --> whole numbers, cut toward zero, added as integers (F: fraction_bits)
//   their sum            --> times 2^(E - F), into the accumulator's format
//
// A product of operands with at most 24 bits together is exact in fp32 from 2^-126 on; what is
// smaller is cut to zero wherever E is at least F - 125. Groups below that, and rules that the
// lanes have no way for, are left to the scalar rule.
#include <algorithm>
#include <cmath>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "scaling/rules/accumulator_inline.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

using scaling::Accumulator;
using scaling::AccumulatorRounding;

// Rows whose sums stay in registers.
#if defined(__AVX512F__)
constexpr int kRows = 4;
#elif defined(__AVX2__)
constexpr int kRows = 2;
#else
constexpr int kRows = 1;
#endif

// --- Vectors of 16-bit exponents -----------------------------------------------------------------

ADA_INLINE S LoadS(const std::int16_t* p) {
  S v;
  LoadParts(p, v);
  return v;
}
ADA_INLINE S MaxS(S a, S b) { return Select(a > b, a, b); }
ADA_INLINE I Widened(S v) {
#if defined(__AVX512F__)
  return (I)_mm512_cvtepi16_epi32((__m256i)v);
#else
  return (I)(ToUnsigned((H)v) << 16) >> 16;
#endif
}
ADA_INLINE I MaxI(I a, I b) { return Select(a > b, a, b); }
ADA_INLINE I FillI(std::int32_t x) { return I{} + x; }

// --- A rule as the lanes apply it ----------------------------------------------------------------

// How a sum becomes a number of the accumulator's format.
enum class Into : std::uint8_t { kCut, kNearest, kNearestNarrow, kHalf };

struct Plan {
  int fraction_bits;
  int most;   // products whose whole numbers add up within 31 bits
  bool wide;  // sums of a group may exceed fp32's 24 bits
  Into into;
  std::uint32_t keep;  // kCut, kNearestNarrow: the bits that stay
  int shift;           // kNearestNarrow: bits that go
  int lowest;          // the accumulator's least exponent
  bool zero_counts;    // a sum of zero has that exponent
};

// Whether the lanes have a way for the rule. Exponents of fp32, or fp16 to nearest.
bool HasPlan(const Accumulator& rule) {
  if (!rule.cuts() || rule.fraction_bits > 25) return false;
  const NumberFormat& format = rule.format;
  if (format == kFp16) return rule.rounding == AccumulatorRounding::kNearest;
  return format.exponent_bits == 8 && format.bias == 127 && format.has_inf && !format.saturate;
}

Plan PlanOf(const Accumulator& rule) {
  const NumberFormat& format = rule.format;
  Plan plan;
  plan.fraction_bits = rule.fraction_bits;
  // A product has at most two bits before the point of its exponent.
  plan.most = 1 << (29 - rule.fraction_bits);
  plan.wide = (static_cast<std::int64_t>(rule.group) + 1) << (rule.fraction_bits + 2) > 1 << 24;
  plan.shift = 23 - format.mantissa_bits;
  plan.keep = ~0u << plan.shift;
  plan.into = format == kFp16                                   ? Into::kHalf
              : rule.rounding == AccumulatorRounding::kTruncate ? Into::kCut
              : format.mantissa_bits == 23                      ? Into::kNearest
                                                                : Into::kNearestNarrow;
  plan.lowest = 1 - format.bias;
  plan.zero_counts = format.exponent_bits >= 8;
  return plan;
}

// The exponent of a finite sum; of zero as the rule says.
ADA_INLINE I ExponentOf(F sum, const Plan& plan) {
  const I exponent = MaxI((I)(Magnitude(sum) >> 23) - 127, FillI(plan.lowest));
  if (plan.zero_counts) return exponent;
  return Select(sum == F{}, FillI(2 * kExponentOfZero), exponent);
}

// A whole number of more than 24 bits: 4096 high + low, where low may have any sign.
struct Whole {
  I high, low;
  ADA_INLINE void Add(I x) { high += x >> 12, low += x & 4095; }
};

// Its nearest number of 24 bits, or (to_odd) the one toward zero with its last bit set where
// something was cut, or (neither) toward zero.
ADA_INLINE F ToFloat(Whole x, bool nearest, bool to_odd) {
  x.high += x.low >> 12, x.low &= 4095;
  const I negative = x.high < I{};
  const I low = Select(negative, (4096 - x.low) & 4095, x.low);
  const I high = Select(negative, -1 - x.high + (FillI(1) & (x.low == I{})), x.high);
  const F coarse = ToFloats(high);
  const I shift = MaxI((I)(Bits(coarse) >> 23) - (127 + 11), I{});
  const I kept = (low >> shift) << shift;
  F value = coarse * 4096.0f + ToFloats(kept);
  U bits = Bits(value);
  const I rest = low - kept;
  if (nearest) {
    const I half = (FillI(1) << shift) >> 1;
    const I up = (rest > half) | ((rest == half) & (shift > I{}) & ((I)(bits & 1u) == FillI(1)));
    bits -= (U)up;
  } else if (to_odd) {
    bits |= (U)(rest != I{}) & 1u;
  }
  return Float(bits | ((U)negative & 0x80000000u));
}

ADA_INLINE F IntoFormat(F value, const Plan& plan) {
  switch (plan.into) {
    case Into::kCut:
      return Float(Bits(value) & plan.keep);
    case Into::kNearest:
      return value;
    case Into::kNearestNarrow: {
      const U u = Bits(value);
      return Float((u + ((1u << (plan.shift - 1)) - 1) + ((u >> plan.shift) & 1u)) & plan.keep) +
             0.0f;
    }
    case Into::kHalf:
      return FromFp16(ToFp16(value)) + 0.0f;
  }
  return value;
}

// --- Groups --------------------------------------------------------------------------------------

// The scalar rule, for one row's outputs of one group.
void GroupByRule(const AccumulateArgs& s, std::int64_t row, std::int64_t k, int count) {
  double products[scaling::kMostOfGroup];
  int exponents[scaling::kMostOfGroup];
  std::int64_t swallowed = 0;
  for (int lane = 0; lane < kPanel; ++lane) {
    for (int j = 0; j < count; ++j) {
      const std::int64_t at_a = row * s.a_row + (k + j) * s.a_step,
                         at_b = (k + j) * s.b_step + lane;
      products[j] = static_cast<double>(s.a[at_a]) * static_cast<double>(s.b[at_b]);
      exponents[j] = s.a_exponents[at_a] + s.b_exponents[at_b];
    }
    float& part = s.part[row * kPanel + lane];
    part = static_cast<float>(scaling::AddGroup(s.rule, products, exponents, count,
                                                static_cast<double>(part),
                                                s.counts != nullptr ? &swallowed : nullptr));
    if (s.counts == nullptr) continue;
    for (int j = 0; j < count; ++j) {
      s.counts->products += products[j] != 0 ? 1 : 0;
      s.exact[row * kPanel + lane] += products[j];
      s.magnitudes[row * kPanel + lane] += std::abs(products[j]);
    }
  }
  if (s.counts != nullptr) s.counts->swallowed += swallowed;
}

// What one product of each lane adds to the counts.
ADA_OUTLINE void CountProducts(const AccumulateArgs& s, std::int64_t row, double a, const float* b,
                               I swallowed, I present) {
  double *exact = s.exact + row * kPanel, *magnitudes = s.magnitudes + row * kPanel;
  for (int lane = 0; lane < kPanel; ++lane) {
    const double product = a * static_cast<double>(b[lane]);
    exact[lane] += product, magnitudes[lane] += std::abs(product);
  }
  s.counts->products += __builtin_popcount(LaneBits(present));
  s.counts->swallowed += __builtin_popcount(LaneBits(present & swallowed));
}

// One group of R rows. part: their sums, which stay in registers from group to group.
template <int R, bool kCount>
ADA_INLINE void Group(const AccumulateArgs& s, const Plan& plan, std::int64_t row, std::int64_t k,
                      int count, F (&part)[R]) {
  const float* const a = s.a + row * s.a_row + k * s.a_step;
  const std::int16_t* const a_exponents = s.a_exponents + row * s.a_row + k * s.a_step;
  const float* const b = s.b + k * s.b_step;
  const std::int16_t* const b_exponents = s.b_exponents + k * s.b_step;
  S top[R];
  for (int r = 0; r < R; ++r) top[r] = S{} + static_cast<std::int16_t>(2 * kExponentOfZero);
  for (int j = 0; j < count; ++j) {
    const S of_b = LoadS(b_exponents + j * s.b_step);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      top[r] = MaxS(top[r], of_b + a_exponents[r * s.a_row + j * s.a_step]);
  }
  const int bits = plan.fraction_bits;
  F scale[R], unit[R], cut_part[R];
  I ended[R];
  unsigned left = 0;  // rows that the scalar rule takes
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    ended[r] = (I)Magnitude(part[r]) >= FillI(0x7f800000);
    cut_part[r] = Select(ended[r], F{}, part[r]);
    const I products = Widened(top[r]);
    const I largest = MaxI(products, ExponentOf(cut_part[r], plan));
    const I nothing = (products < FillI(kExponentOfZero / 2)) & (cut_part[r] == F{});
    const I low = (largest < FillI(bits - 125)) & ~nothing;
    if (LaneBits(low) != 0) left |= 1u << r;
    const I safe = MaxI(largest, FillI(bits - 125));
    scale[r] = Float((U)(127 + bits - safe) << 23);
    unit[r] = Float((U)(127 - bits + safe) << 23);
  }
  I sum[R] = {};
  Whole whole[R] = {};
  for (int begin = 0; begin < count; begin += plan.most) {
    const int end = std::min(begin + plan.most, count);
    for (int j = begin; j < end; ++j) {
      const F of_b = LoadF(b + j * s.b_step);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const F product = of_b * a[r * s.a_row + j * s.a_step];
        const I cut = ToInts(product * scale[r]);
        sum[r] += cut;
        if constexpr (kCount) {
          if ((left >> r & 1u) != 0) continue;
          const S both =
              LoadS(b_exponents + j * s.b_step) + a_exponents[r * s.a_row + j * s.a_step];
          CountProducts(s, row + r, static_cast<double>(a[r * s.a_row + j * s.a_step]),
                        b + j * s.b_step, (cut == I{}) & ~ended[r],
                        Widened(both) > FillI(kExponentOfZero / 2));
        }
      }
    }
    if (!plan.wide) continue;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) whole[r].Add(sum[r]), sum[r] = I{};
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const I own = ToInts(cut_part[r] * scale[r]);
    F value;
    if (plan.wide) {
      whole[r].Add(own);
      value = ToFloat(whole[r], plan.into == Into::kNearest, plan.into > Into::kNearest);
    } else {
      value = ToFloats(sum[r] + own);
    }
    const F next = Select(ended[r], part[r], IntoFormat(value * unit[r], plan));
    if ((left >> r & 1u) == 0) {
      part[r] = next;
      continue;
    }
    StoreF(s.part + (row + r) * kPanel, part[r]);
    GroupByRule(s, row + r, k, count);
    part[r] = LoadF(s.part + (row + r) * kPanel);
  }
}

template <int R, bool kCount>
void RowsOf(const AccumulateArgs& s, const Plan& plan, std::int64_t row) {
  const int group = s.rule.group, promote = s.rule.promote;
  F part[R], main[R];
  for (int r = 0; r < R; ++r) {
    part[r] = LoadF(s.part + (row + r) * kPanel);
    main[r] = promote > 0 ? LoadF(s.main + (row + r) * kPanel) : F{};
  }
  std::int64_t until = promote > 0 ? promote - s.first % promote : s.k + group;
  for (std::int64_t k = 0; k < s.k; k += group) {
    Group<R, kCount>(s, plan, row, k, static_cast<int>(std::min<std::int64_t>(group, s.k - k)),
                     part);
    if ((until -= group) > 0) continue;
    until = promote;
    for (int r = 0; r < R; ++r) main[r] += part[r], part[r] = F{};
  }
  for (int r = 0; r < R; ++r) {
    StoreF(s.part + (row + r) * kPanel, part[r]);
    if (promote > 0) StoreF(s.main + (row + r) * kPanel, main[r]);
  }
}

template <bool kCount>
void InVectors(const AccumulateArgs& s) {
  const Plan plan = PlanOf(s.rule);
  std::int64_t row = 0;
  if constexpr (!kCount)
    for (; row + kRows <= s.rows; row += kRows) RowsOf<kRows, false>(s, plan, row);
  for (; row < s.rows; ++row) RowsOf<1, kCount>(s, plan, row);
}

#if defined(__AVX2__)
// Fused multiply-adds in fp32, one after the other.
void Fused(const AccumulateArgs& s) {
  const auto fused = [](F a, F b, F sum) __attribute__((always_inline)) {
#if defined(__AVX512F__)
    return FusedMultiplyAdd(a, b, sum);
#else
    return F{FusedMultiplyAdd(a.low, b.low, sum.low), FusedMultiplyAdd(a.high, b.high, sum.high)};
#endif
  };
  for (std::int64_t row = 0; row < s.rows; ++row) {
    F sum = LoadF(s.part + row * kPanel);
    const float* a = s.a + row * s.a_row;
    for (std::int64_t k = 0; k < s.k; ++k)
      sum = fused(Fill(a[k * s.a_step]), LoadF(s.b + k * s.b_step), sum);
    StoreF(s.part + row * kPanel, sum + 0.0f);
  }
}
#endif

void ByRule(const AccumulateArgs& s) {
  const int group = s.rule.group, promote = s.rule.promote;
  for (std::int64_t row = 0; row < s.rows; ++row) {
    float *part = s.part + row * kPanel, *main = s.main + row * kPanel;
    for (std::int64_t k = 0; k < s.k; k += group) {
      const int count = static_cast<int>(std::min<std::int64_t>(group, s.k - k));
      GroupByRule(s, row, k, count);
      if (promote == 0 || (s.first + k + group) % promote != 0) continue;
      for (int lane = 0; lane < kPanel; ++lane) main[lane] += part[lane], part[lane] = 0;
    }
  }
}

void Accumulate(const AccumulateArgs& s) {
  if (s.vectors && HasPlan(s.rule))
    return s.counts != nullptr ? InVectors<true>(s) : InVectors<false>(s);
#if defined(__AVX2__)
  if (s.rule == Accumulator{1, Accumulator::kExact, kFp32, AccumulatorRounding::kNearest, 0} &&
      s.counts == nullptr)
    return Fused(s);
#endif
  ByRule(s);
}

int Exponents(const float* values, std::int64_t n, int least, std::int16_t* exponents) {
  I largest = FillI(kExponentOfZero);
  const auto of = [&](F x) __attribute__((always_inline)) {
    const I exponent = MaxI((I)(Magnitude(x) >> 23) - 127, FillI(least));
    return Select(x == F{}, FillI(kExponentOfZero), exponent);
  };
  std::int64_t i = 0;
  for (; i + kPanel <= n; i += kPanel) {
    const I found = of(LoadF(values + i));
    largest = MaxI(largest, found);
    StoreH(reinterpret_cast<std::uint16_t*>(exponents + i), ToCodes((U)found & 0xffffu));
  }
  if (i < n) {
    const I found = of(LoadFirstF(values + i, static_cast<int>(n - i)));
    largest = MaxI(largest, found);
    StoreFirstH(reinterpret_cast<std::uint16_t*>(exponents + i), static_cast<int>(n - i),
                ToCodes((U)found & 0xffffu));
  }
  std::int32_t lanes[kPanel];
  std::memcpy(lanes, &largest, sizeof lanes);
  return *std::max_element(lanes, lanes + kPanel);
}

}  // namespace

const AccumulateKernels kAccumulateTable = {Exponents, Accumulate};

}  // namespace ada::backend::cpu::ADA_ISA
