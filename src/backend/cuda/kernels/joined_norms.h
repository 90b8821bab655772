// Batch norm's channels where several processes share the batch: sums over the parts of all, in the
// order of processes, as parts of one process are merged.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/batch_norm.h"

namespace ada::backend::cuda {

// What all processes have, one NormPart after the other.
struct NormParts {
  const double* values = nullptr;
  int ranks = 0;
  std::int64_t channels = 0;
  ADA_HOST_DEVICE const double* Of(int rank) const {
    return values + std::int64_t{rank} * (2 * channels + 1);
  }
  ADA_HOST_DEVICE double Count() const {
    double count = 0;
    for (int rank = 0; rank < ranks; ++rank) count += Of(rank)[0];
    return count;
  }
};

// Mean and squared deviations of channel c over all, from those of each. For all channels.
// The same formula as over parts of one process (BatchStatistics), in double, so that processes
// agree to the last bit. Runs in every process.
struct JoinStatistics {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    const double count = parts.Count();
    double mean = 0, m2 = 0;
    for (int rank = 0; rank < parts.ranks; ++rank)
      mean += parts.Of(rank)[0] * parts.Of(rank)[1 + c];
    mean /= count;
    for (int rank = 0; rank < parts.ranks; ++rank) {
      const double* of = parts.Of(rank);
      const double d = of[1 + c] - mean;
      m2 += of[1 + parts.channels + c] + of[0] * d * d;
    }
    to.Set(c, static_cast<float>(mean), m2 / count);
    MoveRunning(momentum, mean, m2, count, running_mean[c], running_var[c]);
  }

  NormParts parts;
  ChannelFactors to;
  float *running_mean = nullptr, *running_var = nullptr;
  double momentum = 0;
};

// Computes what dx needs from the sums over all processes. For all channels.
struct JoinGradientSums {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    double dy = 0, dy_xhat = 0;
    for (int rank = 0; rank < parts.ranks; ++rank) {
      dy += parts.Of(rank)[1 + c];
      dy_xhat += parts.Of(rank)[1 + parts.channels + c];
    }
    const ChannelGradient g = ChannelGradientOf(dy, dy_xhat, parts.Count(), inverse[c], *scale);
    mean_dy[c] = g.mean_dy, slope[c] = g.slope;
  }

  NormParts parts;
  const float *inverse = nullptr, *scale = nullptr;
  float *mean_dy = nullptr, *slope = nullptr;
};

}  // namespace ada::backend::cuda
