// The gradient of a parameter as a sum of terms over all pixels.
#pragma once
#include "backend/backend.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

// The sum of `term` over the values of all images, over `scale`, of each channel or of all
// (added to what is there where the pass accumulates). `sums`: memory for the strips of the batch.
template <class Term>
void SumTerms(Stream& stream, const Pass& pass, const Strips& strips, std::int64_t channels,
              bool by_channel, const Term& term, float* sums, const float* scale,
              const Tensor& gradient) {
  // Two launches: a thread for each strip and channel in fp32, then one for each channel, which
  // adds the strips in double in their order.
  const StripSums<Term> of_strips = {strips, channels, sums, term};
  ForEach(stream, of_strips.Count(pass.rows), of_strips);
  const ParameterSum sum = {
      sums, pass.rows * strips.per_image(), channels, scale, gradient.f32(), pass.accumulate};
  if (by_channel)
    ForEach(stream, channels, sum);
  else
    ForEach(stream, 1, WholeParameterSum{sum});
}
template <class Term>
void SumByChannel(Stream& stream, const Pass& pass, const Strips& strips, std::int64_t channels,
                  const Term& term, float* sums, const float* scale, const Tensor& gradient) {
  SumTerms(stream, pass, strips, channels, true, term, sums, scale, gradient);
}

}  // namespace ada::backend::cuda
