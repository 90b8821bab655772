// The update, which computes new masters from weight gradients, and its decisions, which are made
// on the device where the gradients are.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "number/stats.h"
#include "number/tensor.h"
#include "scaling/rules/accumulator.h"

namespace ada::backend {

// A parameter as so many matrices, its last two axes; rows 0: it is a vector.
struct MatrixShape {
  std::int64_t count = 1, rows = 0, columns = 0;
};
// One parameter as the optimizer sees it. State tensors are fp32 of the same shape, but for
// row and column averages (adafactor). Which states a rule has: optim/states.h.
struct UpdateSlot {
  Tensor value, gradient, state1, state2;
  double decay = 1, lr = 1;  // factors of the rule's weight decay and of the step's rate
  std::uint64_t stream = 0;  // distinguishes parameters in stochastic rounding
  Tensor state3 = {};
  Tensor rest = {};  // what rounding took from the master: a compensation, or its low bits
  // The scales of states that are kept in scaled codes, a value for each block.
  Tensor scale1 = {}, scale2 = {}, scale3 = {};
  MatrixShape matrix = {};
  bool other = false;  // updated by the rule's `others`
  void Visit(auto&& visit) {
    visit(value, gradient, state1, state2, state3, rest, scale1, scale2, scale3);
  }
};
// The format in which an update stores its results; they are stored in fp32 memory.
struct StorageFormat {
  NumberFormat format = kFp32;
  bool stochastic = false;
};
// How one state is kept: values of a format or of a map, times a scale of the tensor or of a block
// of values. Stored are the products, in fp32 memory.
struct StateStorage : StorageFormat {
  enum class Scaling : std::uint8_t { kNone, kTensor, kBlock };
  Scaling scaling = Scaling::kNone;
  // The values that a code may stand for, in -1 .. 1 (backend/state_maps.h); kFormat: the format's.
  enum class Map : std::uint8_t { kFormat, kTorchao8, kTorchao4, kBitsandbytes };
  Map map = Map::kFormat;
  bool is_signed = true;   // of a map
  std::int64_t block = 0;  // values of a block
  double top = 1;          // the scaled value of the largest magnitude
  float least = 0;         // of the magnitude from which a scale is made
  std::int64_t from = 0;   // tensors of fewer values stay fp32
  bool whole = false;      // and so do those whose values are no whole number of blocks
  bool is_scaled() const { return scaling != Scaling::kNone; }
};
// At most so many states belong to a parameter, and so many parts of an update are counted: its
// changes, its master, and each state.
inline constexpr std::size_t kMostStates = 3, kUpdateParts = 2 + kMostStates;
struct UpdateRule {
  enum class Kind : std::uint8_t {
    kSgd,
    kAdam,
    kAdamW,
    kLion,
    kRmsprop,
    kNadam,
    kRadam,
    kAdagrad,
    kAdamax,
    kAdafactor,
    kScheduleFree,
    kAdopt,
    kAdemamix,
    kLamb,
    kStableAdamW,
    kMuon
  } kind = Kind::kSgd;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double dampening = 0;  // share of each gradient that the momentum omits, except the first
  bool nesterov = false;
  // What the momentum accumulates: gradients, multiplied by the current learning rate (torch), or
  // steps, each computed with the learning rate of its own time (Chainer, Caffe, Keras).
  enum class Velocity { kGradients, kSteps } velocity = Velocity::kGradients;
  StorageFormat masters, state;
  bool amsgrad = false;                 // adam, adamw
  double alpha = 0.99;                  // rmsprop
  double beta3 = 0.9999, mix = 5;       // ademamix: the slow mean's decay and factor
  bool centered = false;                // rmsprop
  double momentum_decay = 4e-3;         // nadam
  bool decoupled_weight_decay = false;  // nadam, radam
  double lr_decay = 0;                  // adagrad
  double beta2_decay = -0.8, clip = 1;  // adafactor: the exponent of its decay; its `d`
  // muon
  enum class AdjustLr : std::uint8_t { kOriginal, kMatchRmsAdamW, kSpectralUnclamped };
  AdjustLr adjust_lr = AdjustLr::kOriginal;
  int ns_steps = 5;
  std::array<double, 3> ns_coefficients = {3.4445, -4.7750, 2.0315};
  NumberFormat ns_format = kBf16;
  std::optional<scaling::Accumulator> ns_sums;  // of the iteration's products; unset: fp32
  // How the states are kept; null: all as `state` says.
  std::shared_ptr<const std::array<StateStorage, kMostStates>> states;
  // What becomes of the part of a master that its format does not hold: it is lost, added to a
  // compensation that the next update adds (Kahan), or kept as the low bits of an fp32 master.
  enum class Compensation : std::uint8_t { kNone, kKahan, kRemainder };
  Compensation compensation = Compensation::kNone;
  // The arithmetic: fp32; or each operation rounded to the masters' format, in the order of
  // torch.optim, or of torch-optimi, which corrects the averages' decays instead of the averages.
  enum class Arithmetic : std::uint8_t { kFp32, kTorch, kOptimi };
  Arithmetic arithmetic = Arithmetic::kFp32;
  // muon: the rule of all other parameters, and its rate as a share of the step's.
  std::shared_ptr<const UpdateRule> others;
  double others_lr = 1;
};
struct UpdateStep {
  double lr = 0;
  double gradient_factor = 1;  // clipping; filled in by the op
  std::int64_t count = 1;      // updates including this one (Adam's bias correction)
  std::uint64_t seed = 0;      // of stochastic rounding, whose numbers `count` tells apart
};
// What is to happen to gradients, as far as it is known before they are; the op decides the rest
// itself, without the host.
struct UpdatePlan {
  UpdateStep step;
  double clip_norm = 0;  // > 0: gradients are multiplied by ClipFactor(norm, clip_norm)
  // If a gradient is not finite: kSkip: nothing changes; kSanitize: NaN become 0, magnitudes above
  // `sanitize_to` (also inf) become that value with their sign, then the norm for clipping is
  // computed again, and the update takes place.
  enum class OnOverflow : std::uint8_t { kSkip, kSanitize } on_overflow = OnOverflow::kSkip;
  float sanitize_to = 0;
  // kSanitize: only values that are not finite change, NaN to this value, inf to `sanitize_to`.
  bool only_nonfinite = false;
  float nan_to = 0;
  bool largest = false;  // UpdateOutcome::largest is wanted
  bool count = false;    // UpdateOp::Stats is wanted
  // Distinguishes plans whose updates run different code; different numbers do not count.
  static constexpr std::uint64_t kKinds = 4;
  std::uint64_t kind() const {
    return (on_overflow == OnOverflow::kSanitize ? 1u : 0u) + (count ? 2u : 0u);
  }
};
// A rounding that is checked like a gradient: if it overflowed its format, nothing is updated.
struct WatchedRounding {
  const TensorStats* stats = nullptr;
  float most = INFINITY;  // magnitudes above this, and NaN, are overflow
  void Visit(auto&& visit) { visit(stats); }
};
struct UpdateOutcome {
  double norm = 0;        // global L2 norm of all gradients before clipping, in double
  float largest = 0;      // their largest magnitude; inf or NaN if there is one (NaN wins)
  bool overflow = false;  // one is not finite; then the norm is not either
  bool watched = false;   // a watched rounding overflowed its format
  bool updated = false;
  bool clipped = false;  // gradients were multiplied by less than 1
};
// What Newton-Schulz's iteration for one matrix lost. numel 0: it was not counted.
struct NewtonSchulzStats {
  TensorStats products;             // of the roundings of its matrices; empty where they are fp32
  TensorStats identity;             // X X^T - 1 of its result X, of the shorter side
  double mse = 0, sqnr_db = 0;      // of its result beside that of the same iteration in fp32
  scaling::AccumulatorCounts sums;  // of all its products; empty where those are fp32
};
class UpdateOp {
 public:
  virtual ~UpdateOp() = default;
  // Checks the watched roundings of the last backward pass. The next Update uses the result of all
  // calls since the last Update.
  virtual void CheckWatched() = 0;
  // Sets what the next Update does. To be called outside of Backend::Run, within which CheckWatched
  // and Update may be called: a replayed update uses the latest plan.
  virtual void Plan(const UpdatePlan& plan) = 0;
  virtual void Update() = 0;
  void Update(const UpdatePlan& plan) {
    Plan(plan);
    Update();
  }
  virtual UpdateOutcome Outcome() = 0;  // of the last Update; waits for it
  // After Outcome of an Update whose plan counts (update_rounding.h): for each slot kUpdateParts:
  // its changes, then the stored values of master and states. Empty if nothing was updated or
  // counted.
  virtual std::vector<TensorStats> Stats() const { return {}; }
  // Then, under muon, one for each slot; else empty.
  virtual std::vector<NewtonSchulzStats> OfNewtonSchulz() const { return {}; }
};

// A running average of a tensor: average += (1 - keep) * (value - average). Both fp32, of one
// shape.
struct AverageSlot {
  Tensor value, average;
  void Visit(auto&& visit) { visit(value, average); }
};
class AverageOp {
 public:
  virtual ~AverageOp() = default;
  virtual void Step(double keep) = 0;  // keep 0: the averages become the values
};

}  // namespace ada::backend
