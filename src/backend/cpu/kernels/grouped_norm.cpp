// Values by their codes, products and sums by channel, and norms of groups of values (formulas.h),
// in fp32: loops that the compiler turns into vectors, whose order no vector length changes.
#include "backend/cpu/kernels/functions.h"
#include "backend/formulas.h"

namespace ada::backend::cpu::ADA_ISA {

void LookUp(const std::uint16_t* codes, const float* table, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = table[codes[i]];
}

// ivdep: out may be a or b, but never overlaps them otherwise.
void Multiply(const float* a, const float* b, float* out, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}

void MultiplyChannels(const float* x, const float* factors, std::int64_t pixels,
                      std::int64_t channels, float* out) {
  for (std::int64_t p = 0; p < pixels; ++p)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c)
      out[p * channels + c] = x[p * channels + c] * factors[c];
}

// The order over pixels is fixed and one lane belongs to one channel, so that any vector length
// gives the same sums.
void StripSums(const float* a, const float* b, std::int64_t pixels, std::int64_t channels,
               float* __restrict sums) {
  for (std::int64_t c = 0; c < channels; ++c) sums[c] = 0;
  for (std::int64_t p = 0; p < pixels; ++p) {
    const float *of_a = a + p * channels, *of_b = b == nullptr ? nullptr : b + p * channels;
    if (of_b == nullptr)
      for (std::int64_t c = 0; c < channels; ++c) sums[c] = sums[c] + of_a[c];
    else
      for (std::int64_t c = 0; c < channels; ++c) sums[c] = sums[c] + of_a[c] * of_b[c];
  }
}

namespace {

// lanes[i % 16] += term(value, channel of the group) for all values of a group, run by run.
// Sixteen lanes in double whatever the set; the tail of a run goes to the first lanes.
template <class Term>
inline __attribute__((always_inline)) double GroupSum(const GroupedNormArgs& a, std::int64_t first,
                                                      Term&& term) {
  double lanes[kSumLanes] = {};
  for (std::int64_t r = 0; r < a.runs; ++r) {
    const std::int64_t begin = first + r * a.step;
    std::int64_t i = 0;
    for (; i + kSumLanes <= a.run; i += kSumLanes)
      for (int k = 0; k < kSumLanes; ++k) lanes[k] += term(begin + i + k, i + k);
    for (int k = 0; i + k < a.run; ++k) lanes[k] += term(begin + i + k, i + k);
  }
  return SumOfLanes(lanes);
}
// each(value, channel of the group).
template <class Each>
inline __attribute__((always_inline)) void ForGroup(const GroupedNormArgs& a, std::int64_t first,
                                                    Each&& each) {
  for (std::int64_t r = 0; r < a.runs; ++r)
#pragma GCC ivdep
    for (std::int64_t i = 0; i < a.run; ++i) each(first + r * a.step + i, i);
}

}  // namespace

namespace {

// A group is divided by its length (L2NormalizeSpec), not by a deviation.
void LengthNorm(const GroupedNormArgs& a) {
  for (std::int64_t group = 0; group < a.groups; ++group) {
    const std::int64_t first = group * a.run;
    const float *x = a.x, *gamma = a.gamma;
    const double norm = std::sqrt(GroupSum(a, first, [&](std::int64_t at, std::int64_t) {
      return static_cast<double>(x[at]) * static_cast<double>(x[at]);
    }));
    const float inverse = InverseLength(norm, a.eps);
    a.mean[group] = static_cast<float>(norm), a.inverse[group] = inverse;
    ForGroup(a, first, [&](std::int64_t at, std::int64_t c) {
      a.out[at] = NormalizedValue(x[at], 0, inverse) * gamma[c];
    });
  }
}

void LengthNormBackward(const GroupedNormArgs& a, float* hat) {
  for (std::int64_t group = 0; group < a.groups; ++group) {
    const std::int64_t first = group * a.run;
    const float *x = a.x, *dy = a.dy, *gamma = a.gamma;
    const float inverse = a.inverse[group];
    ForGroup(a, first,
             [&](std::int64_t at, std::int64_t) { hat[at] = NormalizedValue(x[at], 0, inverse); });
    const double product = GroupSum(a, first, [&](std::int64_t at, std::int64_t c) {
      return static_cast<double>(dy[at] * gamma[c]) * static_cast<double>(x[at]);
    });
    const float along = ProjectionOnX(product, a.mean[group]);
    ForGroup(a, first, [&](std::int64_t at, std::int64_t c) {
      a.out[at] = NormalizedDx(dy[at] * gamma[c], hat[at], inverse, 0, along);
    });
  }
}

}  // namespace

// Two passes over a group, which is in the cache: the mean, then squares of deviations. One pass
// over sums of squares would cancel.
void GroupedNorm(const GroupedNormArgs& given) {
  const GroupedNormArgs a = given;
  if (a.by_length) return LengthNorm(a);
  const bool centered = a.beta != nullptr;  // false: RmsNormSpec
  const double count = static_cast<double>(a.runs) * static_cast<double>(a.run);
  for (std::int64_t group = 0; group < a.groups; ++group) {
    const std::int64_t first = group * a.run;
    const float *x = a.x, *gamma = a.gamma + group * a.affine_step,
                *beta = a.beta + group * a.affine_step;
    double mean = 0;
    if (centered)
      mean = GroupSum(a, first,
                      [&](std::int64_t at, std::int64_t) { return static_cast<double>(x[at]); }) /
             count;
    const double squares = GroupSum(a, first, [&](std::int64_t at, std::int64_t) {
      const double d = static_cast<double>(x[at]) - mean;
      return d * d;
    });
    const auto center = static_cast<float>(mean);
    const float inverse = InverseDeviation(squares / count, a.eps);
    a.mean[group] = center, a.inverse[group] = inverse;
    if (centered)
      ForGroup(a, first, [&](std::int64_t at, std::int64_t c) {
        a.out[at] = NormalizedValue(x[at], center, inverse) * gamma[c] + beta[c];
      });
    else
      ForGroup(a, first, [&](std::int64_t at, std::int64_t c) {
        a.out[at] = NormalizedValue(x[at], 0, inverse) * gamma[c];
      });
  }
}

// xhat is made anew from x, so that only mean and inverse are kept from the forward pass.
void GroupedNormBackward(const GroupedNormArgs& given, float* hat) {
  const GroupedNormArgs a = given;
  if (a.by_length) return LengthNormBackward(a, hat);
  const bool centered = a.beta != nullptr;
  const double count = static_cast<double>(a.runs) * static_cast<double>(a.run);
  for (std::int64_t group = 0; group < a.groups; ++group) {
    const std::int64_t first = group * a.run;
    const float *x = a.x, *dy = a.dy, *gamma = a.gamma + group * a.affine_step;
    const float center = a.mean[group], inverse = a.inverse[group];
    ForGroup(a, first, [&](std::int64_t at, std::int64_t) {
      hat[at] = NormalizedValue(x[at], center, inverse);
    });
    double sum = 0;
    if (centered)
      sum = GroupSum(a, first, [&](std::int64_t at, std::int64_t c) {
        return static_cast<double>(dy[at] * gamma[c]);
      });
    const double product = GroupSum(a, first, [&](std::int64_t at, std::int64_t c) {
      return static_cast<double>(dy[at] * gamma[c]) * static_cast<double>(hat[at]);
    });
    const auto mean_g = static_cast<float>(sum / count);
    const auto mean_ghat = static_cast<float>(product / count);
    ForGroup(a, first, [&](std::int64_t at, std::int64_t c) {
      a.out[at] = NormalizedDx(dy[at] * gamma[c], hat[at], inverse, mean_g, mean_ghat);
    });
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
