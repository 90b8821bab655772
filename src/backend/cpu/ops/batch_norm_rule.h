// How a batch norm gets an alpha. Its rule treats it as a convolution with one product per value,
// whose weight is `factor`, one number for each channel.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"

namespace ada::backend::cpu {

// Made with the op, where its spec has a dx and a scaler.
class BatchNormRule {
 public:
  BatchNormRule(const Context& context, const BatchNormSpec& spec);

  // Decides by dy, which is masked already, and `factor` ([c]), and sets dx's scale. Returns the
  // factors times alpha.
  const float* Decide(const Pass& pass, const std::vector<float>& factor);
  // exact_range: counts a block's dx before alpha. `block`: the kernel's arguments, their `factor`
  // without alpha; nothing is written to its dx.
  void Observe(BatchNormBackwardArgs block, int worker);
  // After the last block.
  void Finish() { tail_.Finish(spec_.scaler); }

 private:
  void TakeMoments(const Pass& pass, const std::vector<float>& factor);

  Context context_;
  BatchNormSpec spec_;
  std::vector<float> scaled_;
  TensorMoments dy_moments_, factor_moments_;
  RoundingStats dy_stats_, factor_stats_;
  TailCounter tail_;
};

}  // namespace ada::backend::cpu
