// Loops over the values of a parameter by segments that the workers share (rounding/blocks.h), and
// sums of them: added in the order of segments, so that any number of threads gives the same bytes.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/blocks.h"

namespace ada::backend::cpu {

// The sum of what of_segment(first, count) gives for each.
template <class OfSegment>
double SumOfSegments(const Context& context, std::int64_t n, const OfSegment& of_segment) {
  std::vector<double> sums(static_cast<std::size_t>(Segments(n)));
  ForSegments(context, n, [&](std::int64_t first, std::int64_t count, std::int64_t segment, int) {
    sums[static_cast<std::size_t>(segment)] = of_segment(first, count);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}
// The sum of body(i) over n values, in double.
template <class Body>
double SumOf(const Context& context, std::int64_t n, const Body& body) {
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = first; i < first + count; ++i) sum += body(i);
    return sum;
  });
}
inline double SumOfSquares(const Context& context, const float* x, std::int64_t n) {
  return SumOfSegments(context, n, [&](std::int64_t first, std::int64_t count) {
    return context.kernels.sum_squares(x + first, count);
  });
}

}  // namespace ada::backend::cpu
