// The optimizer: owns the state tensors of an update rule, clips by the global norm and counts
// updates. The arithmetic is the backend's UpdateOp (update_rules.h); rates come from schedule.h.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace ada::optim {

// One trained parameter. Views; the backend owns the bytes.
struct OptimizedParameter {
  std::string name;                     // as in PyTorch: conv1.weight
  Tensor value;                         // fp32 master
  Tensor gradient;                      // fp32, unscaled, of the same shape
  double decay = 1;                     // factor of the weight decay; 0: it does not apply
  double lr = 1;                        // factor of the learning rate
  std::vector<std::int64_t> dims = {};  // as in PyTorch; empty: a vector
  bool other = false;                   // updated by the rule's `others`
};

// A tensor that a checkpoint must keep: optimizer.<parameter>.<state> (optim/states.h), and
// .<state>_scale of states that are kept in codes.
struct StateTensor {
  std::string name;
  Tensor tensor;  // fp32
  // The shape, where it is not the parameter's; else empty.
  std::vector<std::int64_t> dims = {};
};

// The counts of one parameter's update (backend/update_rounding.h). Masters and states that are
// stored in fp32 are not counted: their numel is 0.
struct UpdateStats {
  TensorStats change, master;
  std::vector<std::pair<std::string, TensorStats>> states;  // by name
  backend::NewtonSchulzStats newton_schulz = {};            // muon
};

// The bytes of the states of a parameter of this shape, as they would be stored in their formats or
// codes, with their scales. `other`: it is updated by the rule's `others`.
std::uint64_t StateBytes(const backend::UpdateRule& rule, const std::vector<std::int64_t>& dims,
                         bool other);
// The bytes that they take in memory, where all are fp32.
std::uint64_t StateMemory(const backend::UpdateRule& rule, const std::vector<std::int64_t>& dims,
                          bool other);

class Optimizer {
 public:
  // Allocates the state tensors (zeroed) in `backend`, which must outlive this. clip_norm 0: none.
  // watched: roundings that CheckWatched looks at.
  Optimizer(backend::Backend& backend, const backend::UpdateRule& rule,
            const std::vector<OptimizedParameter>& parameters, double clip_norm,
            std::vector<backend::WatchedRounding> watched = {});

  // After a backward pass: where a watched rounding left its format, the next Update will change
  // nothing.
  void CheckWatched() { op_->CheckWatched(); }
  // What the next Update does, to be called outside of Backend::Run, which may replay that Update.
  // It reads, of `plan`: step.lr, step.seed, on_overflow, sanitize_to (where on_overflow is
  // kSanitize: positive and finite), largest, count.
  void Plan(backend::UpdatePlan plan);
  // Asks for the norm of all gradients as they stand (unscaled, before clipping and decay) and for
  // the update, clipped, of all parameters; waits for nothing.
  void Update() { op_->Update(); }
  void Update(const backend::UpdatePlan& plan) {
    Plan(plan);
    Update();
  }
  // What came of the Update that was planned last. Waits for it, and counts the update if there was
  // one: to be called before the next plan.
  backend::UpdateOutcome Outcome();

  // After Outcome of an Update whose plan counts: for each parameter, in order, the counts of
  // its changes and of its stored values (backend/update_rounding.h); empty if nothing was
  // updated.
  std::vector<UpdateStats> Stats() const;
  // The slots that the backend updates, in the order of the parameters.
  const std::vector<backend::UpdateSlot>& slots() const { return slots_; }

  // Rounds the masters to nearest in the format in which the rule keeps them: where they were drawn
  // or read in fp32.
  void RoundMasters();

  // Updates made so far: the index (from 0) of the next one.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates);  // on a resume, with the state tensors filled
  // In the order of the parameters; of one parameter exp_avg before exp_avg_sq.
  const std::vector<StateTensor>& state() const { return state_; }

 private:
  void AddStates(const OptimizedParameter& parameter, const backend::UpdateRule& rule,
                 backend::UpdateSlot& slot);

  backend::Backend& backend_;
  backend::UpdateRule rule_;
  double clip_norm_;
  std::vector<backend::UpdateSlot> slots_;
  std::int64_t updates_ = 0;
  bool planned_ = false;  // and Outcome not called since
  std::vector<StateTensor> state_;
  std::unique_ptr<backend::UpdateOp> op_;
};

}  // namespace ada::optim
