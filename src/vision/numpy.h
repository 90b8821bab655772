// What NumPy does that recordings of ChainerCV show: the order of its sums, and the order in which
// its sort leaves equal elements.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ada::vision {

// Sums in the order in which NumPy adds the elements of a row: results agree with it to the last
// bit. Pairwise summation (Higham, SIAM J. Sci. Comput. 14, 1993) over blocks of at most 128
// elements, each summed in eight parts; fewer than eight elements one after the other.
template <class T>
T NumpySum(std::span<const T> values) {
  const std::size_t n = values.size();
  if (n > 128) {
    // The first half is a multiple of eight, as NumPy cuts it.
    const std::size_t half = n / 2 - n / 2 % 8;
    return NumpySum(values.first(half)) + NumpySum(values.subspan(half));
  }
  T sum = 0;
  std::size_t i = 0;
  if (n >= 8) {
    T part[8];
    for (; i < 8; ++i) part[i] = values[i];
    for (; i + 8 <= n; i += 8) {
      for (std::size_t k = 0; k < 8; ++k) part[k] += values[i + k];
    }
    sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
  }
  for (; i < n; ++i) sum += values[i];
  return sum;
}

// The mean of the values that are not NaN, NaN where all are: numpy.nanmean.
template <class Values>
double MeanOfNumbers(const Values& values) {
  std::vector<double> numbers;
  double count = 0;
  for (const double value : values) {
    numbers.push_back(std::isnan(value) ? 0 : value);
    if (!std::isnan(value)) ++count;
  }
  return NumpySum(std::span<const double>(numbers)) / count;
}

// exp in fp32 as NumPy has it on processors with AVX2 and FMA, or AVX-512: up to 2.5 units in the
// last place from the exact value. x = q ln 2 + r with q a whole number (Cody and Waite's reduction
// in two steps), exp(r) is a quotient of polynomials.
inline float NumpyExp(float x) {
  if (std::isnan(x)) return x;
  if (x >= 88.72283935546875F) return std::numeric_limits<float>::infinity();
  if (x <= -103.97208404541015625F) return 0;
  // These are NumPy's constants: ln 2 in two parts, and the coefficients of both polynomials from
  // the highest power on.
  const float q = std::nearbyint(x * 1.44269504F);
  const float r = std::fma(q, -1.42860677e-6F, std::fma(q, -6.93145752e-1F, x));
  constexpr float kAbove[] = {5.0827627e-4F, 6.75789699e-3F, 5.11451215e-2F,
                              0.247361541F,  0.725766480F,   1.0F};
  constexpr float kBelow[] = {2.15950936e-2F, -0.274233550F, 1.0F};
  const auto polynomial = [r](const auto& coefficients) {
    float sum = 0;
    for (const float c : coefficients) sum = std::fma(sum, r, c);
    return sum;
  };
  return std::ldexp(polynomial(kAbove) / polynomial(kBelow), static_cast<int>(q));
}

// The order in which NumPy's argsort leaves equal elements, which recordings of ChainerCV show
// where more than 16 scores are sorted. numpy.argsort(scores)[::-1] with NumPy's default, an
// introsort (Musser 1997) without vector instructions, as releases before 1.25 have it. NaN comes
// first.
std::vector<std::int32_t> NumpyFallingOrder(std::span<const float> scores);

}  // namespace ada::vision
