// Norms of units of values (backend/formulas.h): a unit's sums by 16 threads, its values one by
// one.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/vec8.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

// How images are cut into units: each is `runs` runs of `run` values, `channels` values apart.
// A unit is a pixel's channels (layer norm, RMS norm, L2 normalization), or a group of channels
// over all pixels of an image.
struct UnitGeometry {
  std::int64_t units = 1;  // of an image
  std::int64_t runs = 1, run = 1, channels = 1, per_image = 1;
  bool by_pixel = true;

  ADA_HOST_DEVICE double count() const {
    return static_cast<double>(runs) * static_cast<double>(run);
  }
  // The first value of unit u of the call, and its channel.
  ADA_HOST_DEVICE std::int64_t First(std::int64_t u) const {
    return u / units * per_image + u % units * run;
  }
  ADA_HOST_DEVICE std::int64_t FirstChannel(std::int64_t u) const {
    return by_pixel ? 0 : u % units * run;
  }
  // The channel of value i.
  ADA_HOST_DEVICE std::uint32_t Channel(std::int64_t i) const {
    return static_cast<std::uint32_t>(i) % static_cast<std::uint32_t>(channels);
  }
  ADA_HOST_DEVICE std::int64_t Unit(std::int64_t i) const {
    if (by_pixel) return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(channels);
    const std::uint32_t image =
        static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(per_image);
    return std::int64_t{image} * units + Channel(i) / static_cast<std::uint32_t>(run);
  }
};

// What both kernels share: 16 units a block, 16 threads each.
struct UnitThreads {
  static constexpr int kThreads = 256, kUnits = kThreads / kUnitLanes;
  static int Blocks(std::int64_t units) { return static_cast<int>((units + kUnits - 1) / kUnits); }

  ADA_HOST_DEVICE static std::int64_t Unit(const ThreadIndex& at) {
    return std::int64_t{at.block} * kUnits + at.thread / kUnitLanes;
  }
  ADA_HOST_DEVICE static int Lane(const ThreadIndex& at) { return at.thread % kUnitLanes; }
  ADA_HOST_DEVICE static double Sum(const double* lanes, const ThreadIndex& at) {
    return SumOfLanes(lanes + at.thread / kUnitLanes * kUnitLanes);
  }
  // The sum of term(value, channel) over this thread's values of unit u.
  template <class Term>
  ADA_HOST_DEVICE static double Lanes(const UnitGeometry& g, std::int64_t u, int lane,
                                      Term&& term) {
    const std::int64_t first = g.First(u), channel = g.FirstChannel(u);
    double sum = 0;
    for (std::int64_t r = 0; r < g.runs; ++r)
      for (std::int64_t i = lane; i < g.run; i += kUnitLanes)
        sum += term(first + r * g.channels + i, channel + i);
    return sum;
  }
};

// Mean and inverse deviation of each unit: two passes over its values, as on a CPU.
// Threads whose unit is past the last one return early from every phase, which they may: the
// barriers are between the calls of Run.
struct UnitStatistics {
  static constexpr int kThreads = UnitThreads::kThreads, kPhases = 3;
  struct Shared {
    double sum[kThreads], squares[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t u = UnitThreads::Unit(at);
    if (u >= units) return;
    const int lane = UnitThreads::Lane(at);
    if constexpr (kPhase == 0) {
      shared.sum[at.thread] = UnitThreads::Lanes(
          geometry, u, lane,
          [&](std::int64_t i, std::int64_t) { return static_cast<double>(Load(x, i)); });
      return;
    } else {
      const double center = UnitThreads::Sum(shared.sum, at) / geometry.count();
      if constexpr (kPhase == 1) {
        shared.squares[at.thread] =
            UnitThreads::Lanes(geometry, u, lane, [&](std::int64_t i, std::int64_t) {
              const double d = static_cast<double>(Load(x, i)) - center;
              return d * d;
            });
      } else if (lane == 0) {
        mean[u] = static_cast<float>(center);
        inverse[u] = InverseDeviation(UnitThreads::Sum(shared.squares, at) / geometry.count(), eps);
      }
    }
  }

  UnitGeometry geometry;
  std::int64_t units;  // of the call
  TensorSpan x;
  double eps;
  float *mean, *inverse;
};

// A sum over each group of term(value, channel, unit), passed to finish(unit, sum): the form of all
// kernels with one sum per group; `work` defines the terms and the use of the sum.
template <class Work>
struct UnitSums {
  static constexpr int kThreads = UnitThreads::kThreads, kPhases = 2;
  struct Shared {
    double sum[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t u = UnitThreads::Unit(at);
    if (u >= units) return;
    const int lane = UnitThreads::Lane(at);
    if constexpr (kPhase == 0)
      shared.sum[at.thread] = UnitThreads::Lanes(
          geometry, u, lane, [&](std::int64_t i, std::int64_t c) { return work.Term(i, c, u); });
    else if (lane == 0)
      work.Finish(u, UnitThreads::Sum(shared.sum, at));
  }

  UnitGeometry geometry;
  std::int64_t units;  // of the call
  Work work;
};

// The length of each unit, and one over it.
struct UnitLengths {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t, std::int64_t) const {
    const auto v = static_cast<double>(Load(x, i));
    return v * v;
  }
  ADA_HOST_DEVICE void Finish(std::int64_t u, double squares) const {
    const double norm = std::sqrt(squares);
    size[u] = static_cast<float>(norm), inverse[u] = InverseLength(norm, eps);
  }
  TensorSpan x;
  double eps, count;  // values of a unit
  float *size, *inverse;
};
// One over the root of the mean square of each unit; its size is nobody's.
struct UnitRootMeanSquares : UnitLengths {
  ADA_HOST_DEVICE void Finish(std::int64_t u, double squares) const {
    inverse[u] = InverseDeviation(squares / count, eps);
  }
};
// mean_ghat of units that are divided by their lengths.
struct UnitsAlong {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t c, std::int64_t) const {
    return static_cast<double>(Load(dy, i) * gamma[c]) * static_cast<double>(Load(x, i));
  }
  ADA_HOST_DEVICE void Finish(std::int64_t u, double product) const {
    mean_ghat[u] = AlongUnit(product, size[u]);
  }
  TensorSpan x, dy;
  const float *size, *inverse, *gamma;
  double count;
  float* mean_ghat;
};
// The same of units that are divided by the root of their mean square. `u`: of value i.
// Both functions hide those of UnitsAlong; UnitSums calls them by the type it is given.
struct UnitRmsSlopes : UnitsAlong {
  ADA_HOST_DEVICE double Term(std::int64_t i, std::int64_t c, std::int64_t u) const {
    return static_cast<double>(Load(dy, i) * gamma[c]) *
           static_cast<double>(UnitHat(Load(x, i), 0, inverse[u]));
  }
  ADA_HOST_DEVICE void Finish(std::int64_t u, double product) const {
    mean_ghat[u] = static_cast<float>(product / count);
  }
};

// The two means that dx subtracts: of g = dy * gamma, and of g * xhat.
struct UnitGradientSums {
  static constexpr int kThreads = UnitThreads::kThreads, kPhases = 2;
  struct Shared {
    double sum[kThreads], product[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t u = UnitThreads::Unit(at);
    if (u >= units) return;
    const int lane = UnitThreads::Lane(at);
    if constexpr (kPhase == 0) {
      const float center = mean[u], factor = inverse[u];
      shared.sum[at.thread] =
          UnitThreads::Lanes(geometry, u, lane, [&](std::int64_t i, std::int64_t c) {
            return static_cast<double>(Load(dy, i) * gamma[c]);
          });
      shared.product[at.thread] =
          UnitThreads::Lanes(geometry, u, lane, [&](std::int64_t i, std::int64_t c) {
            return static_cast<double>(Load(dy, i) * gamma[c]) *
                   static_cast<double>(UnitHat(Load(x, i), center, factor));
          });
    } else if (lane == 0) {
      mean_g[u] = static_cast<float>(UnitThreads::Sum(shared.sum, at) / geometry.count());
      mean_ghat[u] = static_cast<float>(UnitThreads::Sum(shared.product, at) / geometry.count());
    }
  }

  UnitGeometry geometry;
  std::int64_t units;
  TensorSpan x, dy;
  const float *mean, *inverse, *gamma;
  float *mean_g, *mean_ghat;
};

// Values of RoundingStats::Round: y and dx, one by one, from the units' statistics.
struct GroupedNormValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t u = geometry.Unit(i);
    const std::uint32_t c = geometry.Channel(i);
    const float scaled = UnitHat(Load(x, i), mean[u], inverse[u]) * gamma[c];
    return beta == nullptr ? scaled : scaled + beta[c];
  }
  UnitGeometry geometry;
  TensorSpan x;
  const float *mean, *inverse, *gamma, *beta;
};
struct GroupedNormGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t u = geometry.Unit(i);
    const float hat = UnitHat(Load(x, i), mean[u], inverse[u]);
    return UnitDx(Load(dy, i) * gamma[geometry.Channel(i)], hat, inverse[u], mean_g[u],
                  mean_ghat[u]);
  }
  UnitGeometry geometry;
  TensorSpan x, dy;
  const float *mean, *inverse, *gamma, *mean_g, *mean_ghat;
};
// dy * xhat, a term of dgamma (strip_sums.h).
struct HatTerm {
  ADA_HOST_DEVICE StorageType storage() const { return CommonStorageType(x, dy); }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE float At(std::int64_t i) const {
    const std::int64_t u = geometry.Unit(i);
    return LoadAs<kStorageType>(dy, i) * UnitHat(LoadAs<kStorageType>(x, i), mean[u], inverse[u]);
  }
  UnitGeometry geometry;
  TensorSpan x, dy;
  const float *mean, *inverse;
};

}  // namespace ada::backend::cuda
