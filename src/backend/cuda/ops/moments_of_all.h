// Moments of tensors that several processes share, as attention's decisions look at them.
#pragma once
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention_decisions.h"
#include "backend/cuda/link.h"

namespace ada::backend::cuda {

// Moments of tensors of the batch, over all processes that share it: one for the decisions before
// the products of a backward pass and one for those after, as each Join is one message.
class MomentsOfAll {
 public:
  explicit MomentsOfAll(const Context& context);
  // Launches what brings them together. After it At(k) are those of `here.of[k]`.
  void Join(const MomentsHere& here);
  // Whether that takes launches: what reads the moments comes after them then.
  bool joins() const { return link_ != nullptr; }
  const TensorMoments* At(int k) const { return joined_ != nullptr ? joined_ + k : here_.of[k]; }

 private:
  Stream& stream_;
  Link* link_;  // null: what this process has is all there is
  MomentsHere here_{};
  MomentsPart *part_ = nullptr, *parts_ = nullptr;
  TensorMoments* joined_ = nullptr;
};

}  // namespace ada::backend::cuda
