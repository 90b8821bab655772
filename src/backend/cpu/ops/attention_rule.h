// What the four decisions of attention look at (AttentionSpec): the other factor of each product.
#pragma once
#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace ada::backend::cpu {

// Moments of a factor by its own values' times `factor`.
TensorMoments Times(TensorMoments moments, double factor);
// Gives the moments of values that are a product of one value of each, as far as the rules look.
TensorMoments Together(const TensorMoments& one, const TensorMoments& other);
// What a rule sees of a product of a gradient and a factor; of extremes of products those of the
// extremes, whatever meets.
scaling::Observation Seen(const TensorMoments& gradient, const TensorMoments& factor);

// Moments of `channels` channels of each position from `first` on, of `rows` images of all
// processes. Takes kMomentPositions * channels values of each worker's memory.
inline constexpr std::int64_t kMomentPositions = 32;
TensorMoments MomentsOfPart(const Context& context, const Tensor& tensor, std::int64_t first,
                            std::int64_t channels, int rows);

}  // namespace ada::backend::cpu
