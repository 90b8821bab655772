// Local response normalization value by value, in double: each sums over the channels beside it.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/formulas.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

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
