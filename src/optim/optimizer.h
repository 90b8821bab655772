// The optimizer: owns the state tensors of an update rule, clips by the global norm and counts
// updates. The arithmetic is the backend's UpdateOp (update_rules.h); rates come from schedule.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ada::optim {

// One trained parameter. Views; the backend owns the bytes.
struct OptimizedParameter {
  std::string name;   // as in PyTorch: conv1.weight
  Tensor value;       // fp32 master
  Tensor gradient;    // fp32, unscaled, of the same shape
  bool decay = true;  // weight decay applies
};

// A tensor that a checkpoint must keep: optimizer.<parameter>.momentum, .exp_avg or .exp_avg_sq.
struct StateTensor {
  std::string name;
  Tensor tensor;  // fp32, shape of the parameter
};

class Optimizer {
 public:
  // Allocates the state tensors (zeroed) in `backend`, which must outlive this. clip_norm 0: none.
  Optimizer(backend::Backend& backend, const backend::UpdateRule& rule,
            const std::vector<OptimizedParameter>& parameters, double clip_norm);

  // The global L2 norm of all gradients as they stand (unscaled, before clipping and decay); not
  // finite when any gradient is not.
  double GradientNorm();
  // The largest magnitude of all gradients; inf or NaN where one is (NaN first).
  float LargestGradient() { return op_->LargestGradient(); }
  // Makes NaN 0 and larger magnitudes (inf too) +-`largest`; then takes the norm anew, so that
  // Apply may follow.
  void Sanitize(float largest);
  // Updates all parameters at rate `lr`, clipped by what GradientNorm last returned for these
  // gradients (it must have been called and be finite). Returns whether clipping took place.
  bool Apply(double lr);

  // Updates made so far: the index (from 0) of the next one.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates);  // on a resume, with the state tensors filled
  // In the order of the parameters; of one parameter exp_avg before exp_avg_sq.
  const std::vector<StateTensor>& state() const { return state_; }

 private:
  double clip_norm_;
  double norm_ = -1;  // negative: not taken for the present gradients
  std::int64_t updates_ = 0;
  std::vector<StateTensor> state_;
  std::unique_ptr<backend::UpdateOp> op_;
};

// The factor of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 for max_norm 0.
double ClipFactor(double norm, double max_norm);

}  // namespace ada::optim
