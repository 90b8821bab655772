// Norms within an image: of groups of values, and over neighboring channels.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Groups of values ---

// Norms of groups of values (backend/formulas.h): a group's sums by 16 threads, its values one by
// one.
// How images are cut into groups: each is `runs` runs of `run` values, `channels` values apart.
// A group is a pixel's channels (layer norm, RMS norm, L2 normalization), or a group of channels
// over all pixels of an image.
struct NormGroups {
  std::int64_t groups = 1;  // of an image
  std::int64_t runs = 1, run = 1, channels = 1, per_image = 1;
  bool by_pixel = true;

  ADA_HOST_DEVICE double count() const {
    return static_cast<double>(runs) * static_cast<double>(run);
  }
  // The first value of a group of the call, and its channel.
  ADA_HOST_DEVICE std::int64_t First(std::int64_t group) const {
    return group / groups * per_image + group % groups * run;
  }
  ADA_HOST_DEVICE std::int64_t FirstChannel(std::int64_t group) const {
    return by_pixel ? 0 : group % groups * run;
  }
  // The channel of value i.
  ADA_HOST_DEVICE std::uint32_t Channel(std::int64_t i) const {
    return ChannelOf(i, static_cast<std::uint32_t>(channels));
  }
  ADA_HOST_DEVICE std::int64_t Group(std::int64_t i) const {
    if (by_pixel) return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(channels);
    const std::uint32_t image =
        static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(per_image);
    return std::int64_t{image} * groups + Channel(i) / static_cast<std::uint32_t>(run);
  }
};

// The sum of term(value, channel) over this thread's values of a group.
template <class Term>
ADA_HOST_DEVICE double GroupLane(const NormGroups& g, std::int64_t group, int lane, Term&& term) {
  const std::int64_t first = g.First(group), channel = g.FirstChannel(group);
  double sum = 0;
  for (std::int64_t r = 0; r < g.runs; ++r)
    for (std::int64_t i = lane; i < g.run; i += kSumLanes)
      sum += term(first + r * g.channels + i, channel + i);
  return sum;
}

// Mean and inverse deviation of each group: two passes over its values, as on a CPU.
// Threads whose group is past the last one return early from every phase, which they may: the
// barriers are between the calls of Run.
struct GroupStatistics {
  static constexpr int kThreads = GroupThreads::kThreads, kPhases = 3;
  struct Shared {
    double sum[kThreads], squares[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t group = GroupThreads::Group(at);
    if (group >= groups) return;
    const int lane = GroupThreads::Lane(at);
    if constexpr (kPhase == 0) {
      shared.sum[at.thread] = GroupLane(geometry, group, lane, [&](std::int64_t i, std::int64_t) {
        return static_cast<double>(Load(x, i));
      });
      return;
    } else {
      const double center = GroupThreads::Sum(shared.sum, at) / geometry.count();
      if constexpr (kPhase == 1) {
        shared.squares[at.thread] =
            GroupLane(geometry, group, lane, [&](std::int64_t i, std::int64_t) {
              const double d = static_cast<double>(Load(x, i)) - center;
              return d * d;
            });
      } else if (lane == 0) {
        mean[group] = static_cast<float>(center);
        inverse[group] =
            InverseDeviation(GroupThreads::Sum(shared.squares, at) / geometry.count(), eps);
      }
    }
  }

  NormGroups geometry;
  std::int64_t groups;  // of the call
  TensorSpan x;
  double eps;
  float *mean, *inverse;
};

// A sum over each group of term(value, channel, group), passed to finish(group, sum): the form of
// all kernels with one sum per group; `work` defines the terms and the use of the sum.
template <class Work>
struct GroupSums {
  static constexpr int kThreads = GroupThreads::kThreads, kPhases = 2;
  struct Shared {
    double sum[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t group = GroupThreads::Group(at);
    if (group >= groups) return;
    const int lane = GroupThreads::Lane(at);
    if constexpr (kPhase == 0)
      shared.sum[at.thread] = GroupLane(geometry, group, lane, [&](std::int64_t i, std::int64_t c) {
        return work.Term(i, c, group);
      });
    else if (lane == 0)
      work.Finish(group, GroupThreads::Sum(shared.sum, at));
  }

  NormGroups geometry;
  std::int64_t groups;  // of the call
  Work work;
};

// The length of each group, and one over it.
struct GroupLengths {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t, std::int64_t) const {
    const auto v = static_cast<double>(Load(x, i));
    return v * v;
  }
  ADA_HOST_DEVICE void Finish(std::int64_t group, double squares) const {
    const double norm = std::sqrt(squares);
    size[group] = static_cast<float>(norm), inverse[group] = InverseLength(norm, eps);
  }
  TensorSpan x;
  double eps, count;  // values of a group
  float *size, *inverse;
};
// One over the root of the mean square of each group; its size is nobody's.
struct GroupRootMeanSquares : GroupLengths {
  ADA_HOST_DEVICE void Finish(std::int64_t group, double squares) const {
    inverse[group] = InverseDeviation(squares / count, eps);
  }
};
// What stands for mean_ghat in groups that are divided by their lengths: sum(g * x) / norm.
struct GroupProjectionsOnX {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t c, std::int64_t) const {
    return static_cast<double>(Load(dy, i) * gamma[c]) * static_cast<double>(Load(x, i));
  }
  ADA_HOST_DEVICE void Finish(std::int64_t group, double product) const {
    mean_ghat[group] = ProjectionOnX(product, size[group]);
  }
  TensorSpan x, dy;
  const float *size, *inverse, *gamma;
  double count;
  float* mean_ghat;
};
// The same of groups that are divided by the root of their mean square. `group`: that of value i.
// Both functions hide those of GroupProjectionsOnX; GroupSums calls them by the type it is given.
struct GroupRmsMeans : GroupProjectionsOnX {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t c, std::int64_t group) const {
    return static_cast<double>(Load(dy, i) * gamma[c]) *
           static_cast<double>(NormalizedValue(Load(x, i), 0, inverse[group]));
  }
  ADA_HOST_DEVICE void Finish(std::int64_t group, double product) const {
    mean_ghat[group] = static_cast<float>(product / count);
  }
};

// The two means that dx subtracts: of g = dy * gamma, and of g * xhat.
struct GroupGradientMeans {
  static constexpr int kThreads = GroupThreads::kThreads, kPhases = 2;
  struct Shared {
    double sum[kThreads], product[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t group = GroupThreads::Group(at);
    if (group >= groups) return;
    const int lane = GroupThreads::Lane(at);
    if constexpr (kPhase == 0) {
      const float center = mean[group], factor = inverse[group];
      shared.sum[at.thread] = GroupLane(geometry, group, lane, [&](std::int64_t i, std::int64_t c) {
        return static_cast<double>(Load(dy, i) * gamma[c]);
      });
      shared.product[at.thread] =
          GroupLane(geometry, group, lane, [&](std::int64_t i, std::int64_t c) {
            return static_cast<double>(Load(dy, i) * gamma[c]) *
                   static_cast<double>(NormalizedValue(Load(x, i), center, factor));
          });
    } else if (lane == 0) {
      mean_g[group] = static_cast<float>(GroupThreads::Sum(shared.sum, at) / geometry.count());
      mean_ghat[group] =
          static_cast<float>(GroupThreads::Sum(shared.product, at) / geometry.count());
    }
  }

  NormGroups geometry;
  std::int64_t groups;
  TensorSpan x, dy;
  const float *mean, *inverse, *gamma;
  float *mean_g, *mean_ghat;
};

// Values of RoundingStats::Round: y and dx, one by one, from the groups' statistics.
struct GroupedNormValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t group = geometry.Group(i);
    const std::uint32_t c = geometry.Channel(i);
    const float scaled = NormalizedValue(Load(x, i), mean[group], inverse[group]) * gamma[c];
    return beta == nullptr ? scaled : scaled + beta[c];
  }
  NormGroups geometry;
  TensorSpan x;
  const float *mean, *inverse, *gamma, *beta;
};
struct GroupedNormGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t group = geometry.Group(i);
    const float hat = NormalizedValue(Load(x, i), mean[group], inverse[group]);
    return NormalizedDx(Load(dy, i) * gamma[geometry.Channel(i)], hat, inverse[group],
                        mean_g[group], mean_ghat[group]);
  }
  NormGroups geometry;
  TensorSpan x, dy;
  const float *mean, *inverse, *gamma, *mean_g, *mean_ghat;
};
// dy * xhat, a term of dgamma (strip_sums.h).
struct HatTerm {
  ADA_HOST_DEVICE StorageType storage() const { return CommonStorageType(x, dy); }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE float At(std::int64_t i) const {
    const std::int64_t group = geometry.Group(i);
    return LoadAs<kStorageType>(dy, i) *
           NormalizedValue(LoadAs<kStorageType>(x, i), mean[group], inverse[group]);
  }
  NormGroups geometry;
  TensorSpan x, dy;
  const float *mean, *inverse;
};

// --- Neighboring channels ---

// Local response normalization value by value, in double: each sums over the channels beside it.
// Values and sums of one tensor; `size` channels have a part in each sum.
struct LrnWindows {
  ADA_HOST_DEVICE double X(std::int64_t i) const { return static_cast<double>(Load(x, i)); }
  ADA_HOST_DEVICE int Channel(std::int64_t i) const {
    return static_cast<int>(ChannelOf(i, static_cast<std::uint32_t>(channels)));
  }
  // term(value) summed over channels c - before .. c + behind of value i's pixel.
  template <class Term>
  ADA_HOST_DEVICE double Sum(std::int64_t i, int before, int behind, Term&& term) const {
    const int c = Channel(i);
    const int first = c < before ? -c : -before;
    const int last = channels - 1 - c < behind ? channels - 1 - c : behind;
    double sum = 0;
    for (int k = first; k <= last; ++k) sum += term(i + k);
    return sum;
  }
  // k + alpha / size times the sum of squares over the window of value i (formulas.h). An even size
  // has one channel more before the value than after it.
  ADA_HOST_DEVICE double Base(std::int64_t i) const {
    return factors.Base(Sum(i, size / 2, (size - 1) / 2, [this](std::int64_t at) {
      const double v = X(at);
      return v * v;
    }));
  }

  TensorSpan x;
  int channels, size;
  LrnFactors factors;
};

// y of one value, for RoundingStats::Round.
struct LrnValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return static_cast<float>(w.X(i) * w.factors.Power(w.Base(i)));
  }
  LrnWindows w;
};
// dx of one value: its own part, and what it adds to the sums of the values whose windows it lies
// in, which is the window mirrored. Sums are computed anew for each, at the cost of size^2 loads a
// value, and need no memory.
struct LrnGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const double sum = w.Sum(i, (w.size - 1) / 2, w.size / 2, [this](std::int64_t at) {
      const double base = w.Base(at);
      return LrnFactors::Term(Scaled(at, base), w.X(at), base);
    });
    return static_cast<float>(w.factors.Dx(Scaled(i, w.Base(i)), w.X(i), sum));
  }
  ADA_HOST_DEVICE double Scaled(std::int64_t i, double base) const {
    return static_cast<double>(Load(dy, i)) * w.factors.Power(base);
  }
  LrnWindows w;
  TensorSpan dy;
};

}  // namespace ada::backend::cuda
