// Three launches, three more where a plan sanitizes, replayed as one. The host learns what became
// of them when it asks for the outcome.
#include <algorithm>
#include <new>

#include "backend/cuda/kernels/update.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/recordings.h"

namespace ada::backend::cuda {
namespace {

std::vector<UpdateSegment> Cut(const std::vector<UpdateSlot>& slots) {
  const auto from = [](const Tensor& tensor, std::int64_t first) {
    return tensor ? tensor.f32() + first : nullptr;
  };
  std::vector<UpdateSegment> segments;
  for (const UpdateSlot& slot : slots) {
    const std::int64_t values = slot.value.shape.numel();
    for (std::int64_t first = 0; first < values; first += UpdateSegment::kValues) {
      const auto count = std::min(UpdateSegment::kValues, values - first);
      segments.push_back({from(slot.value, first), from(slot.gradient, first),
                          from(slot.state1, first), from(slot.state2, first),
                          static_cast<std::int32_t>(count), slot.decay});
    }
  }
  return segments;
}

// Arguments of a launch are copied when it is asked for: no host memory has to stay.
struct StoreUpdateInputs {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = inputs; }
  UpdateInputs inputs;
  UpdateInputs* to;
};

class CudaUpdate final : public UpdateOp {
 public:
  CudaUpdate(const Context& context, const UpdateRule& rule, const std::vector<UpdateSlot>& slots,
             const std::vector<WatchedRounding>& watched)
      : context_(context),
        rule_(rule),
        inputs_(context.Allocate<UpdateInputs>(1)),
        outcome_(context.shared.Allocate(sizeof(UpdateOutcome))),
        decision_(context.Allocate<UpdateDecision>(1)),
        recordings_(context.stream, context.remarks) {
    const std::vector<UpdateSegment> segments = Cut(slots);
    count_ = static_cast<int>(segments.size());
    segments_ = context.Keep(segments);
    facts_ = context.Allocate<GradientFacts>(count_);
    look_ = {context.Keep(watched), static_cast<int>(watched.size()), decision_};
  }

  void Look() override {
    if (look_.count > 0) Launch(context_.stream, look_, 1);
  }

  void Update(const UpdatePlan& plan) override {
    SendInputs(plan);
    const bool sanitizes = plan.on_overflow == UpdatePlan::OnOverflow::kSanitize;
    recordings_.Run(sanitizes ? 1 : 0, Pass{}, [&] { LaunchAll(sanitizes); });
  }

  UpdateOutcome Outcome() override {
    context_.shared.Fetch(outcome_);
    context_.stream.Synchronize();
    return *reinterpret_cast<const UpdateOutcome*>(outcome_.host);
  }

 private:
  UpdateOutcome* outcome() const { return reinterpret_cast<UpdateOutcome*>(outcome_.backend); }

  void LaunchAll(bool sanitizes) const {
    Measure(/*again=*/false);
    if (sanitizes) {
      Launch(context_.stream, SanitizeGradients{segments_, inputs_, outcome()}, count_);
      Measure(/*again=*/true);
    }
    const bool adam = rule_.kind != UpdateRule::Kind::kSgd;
    Launch(context_.stream, ApplyUpdate{segments_, inputs_, decision_, adam}, count_);
  }
  void SendInputs(const UpdatePlan& plan) {
    UpdateInputs inputs;
    inputs.scalars = MakeUpdateScalars(rule_, plan.step);
    inputs.without_decay = WithoutDecay(inputs.scalars);
    inputs.clip_norm = plan.clip_norm, inputs.sanitize_to = plan.sanitize_to;
    inputs.largest = plan.largest;
    inputs.sanitize = plan.on_overflow == UpdatePlan::OnOverflow::kSanitize;
    ForEach(context_.stream, 1, StoreUpdateInputs{inputs, inputs_});
  }
  void Measure(bool again) const {
    Launch(context_.stream, MeasureGradients{segments_, facts_, outcome(), again}, count_);
    DecideUpdate decide;
    decide.facts = facts_, decide.count = count_;
    decide.inputs = inputs_, decide.outcome = outcome(), decide.decision = decision_;
    decide.again = again;
    Launch(context_.stream, decide, 1);
  }

  Context context_;
  UpdateRule rule_;
  UpdateInputs* inputs_;
  SharedMemory outcome_;
  UpdateDecision* decision_;
  const UpdateSegment* segments_ = nullptr;
  GradientFacts* facts_ = nullptr;
  int count_ = 0;
  LookAtRoundings look_;
  Recordings recordings_;
};

}  // namespace

std::unique_ptr<UpdateOp> MakeUpdateOp(const Context& context, const UpdateRule& rule,
                                       const std::vector<UpdateSlot>& slots,
                                       const std::vector<WatchedRounding>& watched) {
  return std::make_unique<CudaUpdate>(context, rule, slots, watched);
}

}  // namespace ada::backend::cuda
