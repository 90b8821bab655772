// Batch norm, alone or with the residual sum and the relu behind it.
#pragma once
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/merge.h"

namespace ada::backend::cpu {

class BatchNormOp final : public Op {
 public:
  BatchNormOp(const Context& context, const BatchNormSpec& spec);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;

 private:
  void BatchStatistics(const Pass& pass);  // mean_, inverse_ of the batch; running averages move
  void RunningStatistics();                // mean_, inverse_ of the running averages
  void ReduceGradient(const Pass& pass);   // dgamma, dbeta, mean_dy_, slope_

  Context context_;
  BatchNormSpec spec_;
  int block_;
  std::int64_t channels_, pixels_;  // pixels of one image
  std::vector<float> mean_, inverse_, factor_, mean_dy_, slope_;
  std::vector<float> own_mean_, own_m2_;     // [blocks, c], where no convolution wrote them
  std::vector<float> sum_dy_, sum_dy_xhat_;  // [blocks, c]
  ChannelMoments moments_;
  Notes y_notes_, sum_notes_, dx_notes_;
};

}  // namespace ada::backend::cpu
