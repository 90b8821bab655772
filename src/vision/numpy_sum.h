// Sums in the order in which NumPy adds the elements of a row: results agree with it to the last
// bit.
#pragma once
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace ada::vision {

// Pairwise summation (Higham, SIAM J. Sci. Comput. 14, 1993) over blocks of at most 128 elements,
// each summed in eight parts; fewer than eight elements one after the other.
template <class T>
T NumpySum(std::span<const T> values) {
  const std::size_t n = values.size();
  if (n > 128) {
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

}  // namespace ada::vision
