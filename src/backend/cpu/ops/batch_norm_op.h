// Batch norm, alone or with the residual sum and the relu behind it; or recomputed: then it takes
// statistics only, and its consumer does what goes over its values (recomputed_norm.h).
#pragma once
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/merge.h"

namespace ada::backend::cpu {

class BatchNormOp final : public Op {
 public:
  BatchNormOp(const Context& context, const BatchNormSpec& spec);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;

 private:
  void BatchStatistics(const Pass& pass);  // mean_, inverse_ of the batch; running averages move
  void MergeBlocks(const Pass& pass, double count);  // into sums_: mean, sum of squared deviations
  void RunningStatistics();                          // mean_, inverse_ of the running averages
  void PassToConsumer() const;                       // mean_, inverse_, factor_
  void Normalise(const Pass& pass);                  // out
  void TakeSums(const Pass& pass);                   // sum_dy_, sum_dy_xhat_; masks dy
  void ReduceGradient(const Pass& pass);             // dgamma, dbeta, mean_dy_, slope_

  Context context_;
  BatchNormSpec spec_;
  int block_;
  std::int64_t channels_, pixels_;  // pixels of one image
  std::vector<float> mean_, inverse_, factor_, mean_dy_, slope_;
  std::vector<double> sums_[2];                      // by channel, over blocks
  std::vector<float> own_mean_, own_m2_;             // [blocks, c], where no convolution wrote them
  std::vector<float> own_sum_dy_, own_sum_dy_xhat_;  // [blocks, c], where no consumer writes them
  float *sum_dy_ = nullptr, *sum_dy_xhat_ = nullptr;
  ChannelMoments moments_;
  RoundingStats y_notes_, sum_notes_, dx_notes_;
};

}  // namespace ada::backend::cpu
