// Two launches, two more where a plan sanitizes. The host learns what became of them, and adds up
// what they counted, when it asks for the outcome.
#include <algorithm>
#include <new>
#include <utility>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/kernels/update.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/memory.h"
#include "backend/update_rules.h"
#include "error.h"

namespace ada::backend::cuda {

namespace {

// The factors of slots that are updated with the same scalars.
struct Factors {
  double lr, decay;
  friend bool operator==(const Factors&, const Factors&) = default;
};

// The number of a slot's group; a group that is not there yet is added.
int GroupOf(const UpdateSlot& slot, std::vector<Factors>& groups) {
  const Factors factors{slot.lr, slot.decay};
  const auto found = std::find(groups.begin(), groups.end(), factors);
  const auto index = static_cast<int>(found - groups.begin());
  if (found == groups.end()) groups.push_back(factors);
  return index;
}

// The parameters as blocks of threads see them.
// Each segment is one block of threads and belongs to one slot; a group has its own scalars.
struct Cuts {
  std::vector<UpdateSegment> segments;
  std::vector<std::size_t> slots;  // of each segment
  std::vector<Factors> groups;
};
Cuts Cut(const std::vector<UpdateSlot>& slots) {
  const auto from = [](const Tensor& tensor, std::int64_t first) {
    return tensor ? tensor.f32() + first : nullptr;
  };
  Cuts cuts;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const UpdateSlot& slot = slots[i];
    const std::int64_t values = slot.value.shape.numel();
    const int group = GroupOf(slot, cuts.groups);
    for (std::int64_t first = 0; first < values; first += UpdateSegment::kValues) {
      const auto count = std::min(UpdateSegment::kValues, values - first);
      cuts.segments.push_back({from(slot.value, first), from(slot.gradient, first),
                               from(slot.state1, first), from(slot.state2, first),
                               static_cast<std::int32_t>(count), group, slot.stream, first});
      cuts.slots.push_back(i);
    }
  }
  return cuts;
}

// The optimizer makes one for all parameters. Update only launches: whether there is an overflow,
// what the clipping factor is and whether anything is updated is decided on the device. The host
// learns of it in Outcome, which waits.
class CudaUpdate final : public UpdateOp {
 public:
  CudaUpdate(const Context& context, const UpdateRule& rule, const std::vector<UpdateSlot>& slots,
             const std::vector<WatchedRounding>& watched)
      : context_(context),
        rule_(rule),
        on_host_(context.stream),
        outcome_(context.AllocateZeroed<UpdateOutcome>(1)),
        decision_(context.AllocateZeroed<UpdateDecision>(1)),
        finished_(context.AllocateZeroed<std::uint32_t>(1)) {
    Cuts cuts = Cut(slots);
    groups_ = std::move(cuts.groups), slot_of_ = std::move(cuts.slots);
    inputs_ =
        context.shared.Allocate(sizeof(UpdateInputs) + groups_.size() * sizeof(UpdateScalars));
    count_ = static_cast<int>(cuts.segments.size());
    segments_ = context.Keep(cuts.segments);
    slots_ = slots.size();
    facts_ = context.Allocate<GradientFacts>(count_);
    look_ = {context.Keep(watched), static_cast<int>(watched.size()), decision_};
    // With several processes, each checks its own roundings, and all get the result of
    // all.
    if (context.link == nullptr) return;
    look_.decision = context.AllocateZeroed<UpdateDecision>(1);
    looks_ = context.Allocate<UpdateDecision>(context.link->ranks());
  }

  void CheckWatched() override {
    if (look_.count == 0) return;
    Launch(context_.stream, look_, 1);
    if (context_.link == nullptr) return;
    context_.link->AllGatherInStream(look_.decision, sizeof(UpdateDecision), looks_);
    ForEach(context_.stream, 1,
            JoinLooks{looks_, context_.link->ranks(), look_.decision, decision_});
  }

  void Plan(const UpdatePlan& plan) override {
    SendInputs(plan);
    sanitizes_ = plan.on_overflow == UpdatePlan::OnOverflow::kSanitize;
    counted_ = plan.count;
    // Here, since nothing can be allocated while an update is recorded.
    if (counted_ && counts_.bytes == 0)
      counts_ =
          context_.shared.Allocate(static_cast<std::size_t>(count_) * sizeof(ParameterCounts));
  }

  void Update() override {
    Measure(/*again=*/false);
    if (sanitizes_) {
      Launch(context_.stream, SanitizeGradients{segments_, inputs(), outcome_}, count_);
      Measure(/*again=*/true);
    }
    const bool adam = rule_.kind != UpdateRule::Kind::kSgd;
    if (!counted_ && !KeepsFewerBits(rule_)) {
      Launch(context_.stream, ApplyUpdate{segments_, inputs(), decision_, adam}, count_);
      return;
    }
    auto* to = counted_ ? reinterpret_cast<ParameterCounts*>(counts_.backend) : nullptr;
    Launch(context_.stream, ApplyRoundedUpdate{segments_, inputs(), decision_, to, adam}, count_);
  }

  UpdateOutcome Outcome() override {
    if (counted_) context_.shared.Fetch(counts_);
    context_.stream.Synchronize();
    const UpdateOutcome made = *on_host_;
    counted_ = counted_ && made.updated;
    return made;
  }
  // Counts of segments are merged on the host, in the order of segments, as on a CPU.
  std::vector<TensorStats> Stats() const override {
    if (!counted_) return {};
    std::vector<ParameterCounts> totals(slots_, ParameterCounts::Start());
    const auto* counts = reinterpret_cast<const ParameterCounts*>(counts_.host);
    for (std::size_t i = 0; i < slot_of_.size(); ++i) totals[slot_of_[i]].Merge(counts[i]);
    return StatsOfSlots(totals);
  }

 private:
  const UpdateInputs* inputs() const {
    return reinterpret_cast<const UpdateInputs*>(inputs_.backend);
  }

  // What changes from step to step: scalars of each group after the inputs that all share.
  void SendInputs(const UpdatePlan& plan) {
    UpdateInputs& inputs = *new (inputs_.host) UpdateInputs();
    inputs.rounding = MakeUpdateRounding(rule_, plan.step);
    inputs.clip_norm = plan.clip_norm, inputs.sanitize_to = plan.sanitize_to;
    inputs.largest = plan.largest;
    inputs.only_nonfinite = plan.only_nonfinite, inputs.nan_to = plan.nan_to;
    inputs.sanitize = plan.on_overflow == UpdatePlan::OnOverflow::kSanitize;
    auto* all = reinterpret_cast<UpdateScalars*>(&inputs + 1);
    for (std::size_t i = 0; i < groups_.size(); ++i)
      all[i] = MakeUpdateScalars(rule_, plan.step, groups_[i].lr, groups_[i].decay);
    context_.shared.Send(inputs_);
  }
  // Norm and finiteness of all gradients, and the decision by them; `again`: after sanitizing.
  void Measure(bool again) const {
    const MeasureGradients measure{segments_, facts_, outcome_, again};
    DecideUpdate decide;
    decide.facts = facts_, decide.count = count_;
    decide.inputs = inputs(), decide.outcome = outcome_, decide.on_host = on_host_.get();
    decide.decision = decision_, decide.again = again;
    // Without parameters there is nothing to measure.
    if (count_ == 0) return Launch(context_.stream, decide, 1);
    LaunchInTurn(context_.stream, measure, decide, finished_, count_);
  }

  Context context_;
  UpdateRule rule_;
  std::vector<Factors> groups_;
  std::vector<std::size_t> slot_of_;  // by segment
  std::size_t slots_ = 0;
  Pinned<UpdateOutcome> on_host_;
  SharedMemory inputs_, counts_;              // counts_: [segments], where they were asked for
  bool sanitizes_ = false, counted_ = false;  // by the last plan; counted_: made, too
  UpdateOutcome* outcome_;
  UpdateDecision* decision_;
  std::uint32_t* finished_;  // blocks that measured
  const UpdateSegment* segments_ = nullptr;
  GradientFacts* facts_ = nullptr;
  int count_ = 0;
  LookAtRoundings look_;
  UpdateDecision* looks_ = nullptr;  // what each of several processes found
};

}  // namespace

namespace {

// Nothing falls back silently: what the kernels lack ends the run with the key that asks for it.
void RefuseRule(const UpdateRule& rule) {
  using Kind = UpdateRule::Kind;
  const auto refuse = [](const std::string& key, const std::string& what) {
    throw ConfigError(key + ": the CUDA backend has " + what +
                      "; use device.kind: cpu, which has all");
  };
  if (rule.kind != Kind::kSgd && rule.kind != Kind::kAdam && rule.kind != Kind::kAdamW)
    refuse("optimizer.kind", "only sgd, adam and adamw");
  if (rule.amsgrad) refuse("optimizer.amsgrad", "no amsgrad");
  if (rule.compensation != UpdateRule::Compensation::kNone)
    refuse("precision.masters.compensation", "no compensation of masters");
  if (rule.states != nullptr)
    refuse("precision.optimizer_state", "one plain format for all states and no layouts");
}

}  // namespace

std::unique_ptr<UpdateOp> MakeUpdateOp(const Context& context, const UpdateRule& rule,
                                       const std::vector<UpdateSlot>& slots,
                                       const std::vector<WatchedRounding>& watched) {
  RefuseRule(rule);
  return std::make_unique<CudaUpdate>(context, rule, slots, watched);
}

// --- Running averages of tensors: a launch each ---

namespace {

// One step of value i of an average, with the function that every backend uses.
struct MoveAverage {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    average[i] = Averaged(scalars, average[i], value[i]);
  }
  AverageScalars scalars;
  const float* value = nullptr;
  float* average = nullptr;
};

// The averages of weights that are evaluated in place of the masters. `keep` changes from step to
// step, so that the launches are not recorded.
class CudaAverage final : public AverageOp {
 public:
  CudaAverage(const Context& context, const std::vector<AverageSlot>& slots)
      : context_(context), slots_(slots) {}

  void Step(double keep) override {
    const AverageScalars scalars = MakeAverageScalars(keep);
    for (const AverageSlot& slot : slots_)
      ForEach(context_.stream, slot.value.shape.numel(),
              MoveAverage{scalars, slot.value.f32(), slot.average.f32()});
  }

 private:
  Context context_;
  std::vector<AverageSlot> slots_;
};

}  // namespace

std::unique_ptr<AverageOp> MakeAverageOp(const Context& context,
                                         const std::vector<AverageSlot>& slots) {
  return std::make_unique<CudaAverage>(context, slots);
}

}  // namespace ada::backend::cuda
