// The gradient of a parameter that has one value a channel, as a sum of terms over all pixels.
#pragma once
#include "backend/backend.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

// gradient[c] (+)= the sum of `term` over the channel's values of all images, over `scale`. `sums`:
// memory for the strips of the batch.
template <class Term>
void SumByChannel(Stream& stream, const Pass& pass, const Strips& strips, std::int64_t channels,
                  const Term& term, float* sums, const float* scale, const Tensor& gradient) {
  const StripSums<Term> of_strips = {strips, channels, sums, term};
  ForEach(stream, of_strips.Count(pass.rows), of_strips);
  ForEach(stream, channels,
          ParameterSum{sums, pass.rows * strips.per_image(), channels, scale, gradient.f32(),
                       pass.accumulate});
}

}  // namespace ada::backend::cuda
