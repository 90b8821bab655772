// What a layer's rule looks at besides moments, which roundings provide: extremes of products
// (element_wise_range), logarithms (lognormal), exponents of the data gradient (exact_range).
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"

namespace ada::backend::cpu {

// By output channel or feature, as bits: the smallest non-zero magnitude minus 1 and the largest
// magnitude. Where all are zero: what they start with.
struct ChannelMagnitudes {
  explicit ChannelMagnitudes(std::int64_t channels)
      : min_bits(static_cast<std::size_t>(channels), 0xffffffffu),
        max_bits(static_cast<std::size_t>(channels)) {}
  std::vector<std::uint32_t> min_bits, max_bits;
};
// Looks at the first `rows` images of `tensor`, over all processes.
ChannelMagnitudes MagnitudesOfImages(const Context& context, const Tensor& tensor, int rows);
// Moments of a tensor of the batch, of which this process holds `values` values, over all processes
// that share it.
TensorMoments MomentsOfAll(const Context& context, const TensorMoments& mine, std::int64_t values);
// The same of magnitudes.
ChannelMagnitudes MagnitudesOfAll(const Context& context, ChannelMagnitudes mine);
// Weights in PyTorch's order, [groups, inputs, channels, values]: what each of the `groups` *
// `channels` output channels multiplies.
struct WeightRows {
  std::int64_t groups = 1, inputs = 1, channels = 1, values = 1;
};
ChannelMagnitudes MagnitudesOfRows(const Context& context, const float* weights,
                                   const WeightRows& rows);

// Sets product_min and product_max (over the channels in which both have non-zeros; 0: there is
// none). Where dy is not finite, product_max is not either: NaN where dy holds one.
void ObserveProducts(const ChannelMagnitudes& dy, const ChannelMagnitudes& w,
                     scaling::Observation& seen);

// Sets log_mean and log_std of ln|dy| over the non-zero values of the first `rows` images (of all
// processes), in double; 0 where all are zero. The deviation of equal magnitudes is exactly 0.
void ObserveLogs(const Context& context, const Tensor& dy, int rows, scaling::Observation& seen);

// The same for `n` consecutive values, of this process only.
void ObserveLogs(const float* dy, std::int64_t n, scaling::Observation& seen);

// Counts of one backward pass's data gradient, each worker's apart.
class TailCounter {
 public:
  explicit TailCounter(const Context& context)
      : context_(context), counts_(static_cast<std::size_t>(context.pool.size())) {}
  // Begins a pass: counts if `scaler` wants it to (null: it does not). Returns whether it does.
  bool Begin(const scaling::LayerScaler* scaler);
  bool wanted() const { return wanted_; }
  void Add(const Kernels& kernels, const float* x, std::int64_t n, int worker) {
    if (wanted_) kernels.exponent_tail(x, n, counts_[static_cast<std::size_t>(worker)].counts);
  }
  // Hands the sums over all processes over, unless some value was not finite.
  void Finish(scaling::LayerScaler* scaler);

 private:
  void AddOthers(scaling::ExponentTail& tail, std::uint32_t& max_bits) const;
  struct alignas(64) Own {
    TailCounts counts;
  };
  Context context_;
  bool wanted_ = false;
  std::vector<Own> counts_;
};

}  // namespace ada::backend::cpu
