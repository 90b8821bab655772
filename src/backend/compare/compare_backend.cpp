// The factory of compared ops; see tolerances.h.
#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "backend/compare/checker.h"
#include "backend/compare/tolerances.h"

namespace ada::backend {
namespace compare {
namespace {

// What an update or an average keeps.
struct UpdateLabel {
  const char* kKind;
  bool exact;  // but where gradients are clipped
  Outputs kept = {};
  std::string layer = {};
};

// An op on both backends; after each call the second continues with what the first wrote. It has
// the virtual functions that OpType has. Messages name it by spec.layer and spec.kKind.
template <class OpType, class Spec>
class ComparedOp final : public OpType {
 public:
  ComparedOp(Comparison& all, const Spec& spec, std::unique_ptr<OpType> first,
             std::unique_ptr<OpType> second)
      : all_(all), spec_(spec), first_(std::move(first)), second_(std::move(second)) {}

  void Forward(const Pass& pass) {
    Call("forward", Phase::kForward, pass, [&](OpType& op) { op.Forward(pass); });
  }
  void Backward(const Pass& pass) {
    Call("backward", Phase::kBackward, pass, [&](OpType& op) { op.Backward(pass); });
  }
  void RefreshWeights(const Pass& pass) {
    Call("refresh weights", Phase::kRefresh, pass, [&](OpType& op) { op.RefreshWeights(pass); });
  }
  void SetImages(const float* images, int rows) {
    first_->SetImages(images, rows), second_->SetImages(images, rows);
  }
  void SetTargets(const Targets& targets, int rows) {
    first_->SetTargets(targets, rows), second_->SetTargets(targets, rows);
  }
  LossResult Result() {
    const LossResult a = first_->Result(), b = second_->Result();
    Check("result").Compare(kResult, ResultOf(a), ResultOf(b), {0}, kDoubleSums);
    return a;
  }
  void CheckWatched() { first_->CheckWatched(), second_->CheckWatched(); }
  void Plan(const UpdatePlan& plan) { first_->Plan(plan), second_->Plan(plan); }
  void Update() {
    first_->Update(), second_->Update();
    const UpdateOutcome a = first_->Outcome(), b = second_->Outcome();
    const SumTolerance sums{.error = spec_.exact && !a.clipped ? 0 : kUpdate};
    Checker checker = Check("update");
    const double norm = a.overflow ? INFINITY : kDoubleSums * a.norm;
    checker.Compare(kOutcome, OutcomeOf(a), OutcomeOf(b), {0, 0, 0, 0, 0, norm});
    checker.Check(spec_.kept, {}, {{"value", sums}, {"state1", sums}, {"state2", sums}});
  }
  UpdateOutcome Outcome() { return first_->Outcome(); }
  std::vector<TensorStats> Stats() const { return first_->Stats(); }
  void Step(double keep) {
    first_->Step(keep), second_->Step(keep);
    Check("update").Check(spec_.kept, {});
  }

 private:
  Checker Check(const char* phase) { return Checker(all_, spec_.layer, spec_.kKind, phase); }
  void Call(const char* name, Phase phase, const Pass& pass, const auto& body) {
    SumTolerances sums;
    if constexpr (requires { TolerancesOf(all_, spec_, pass); })
      sums = TolerancesOf(all_, spec_, pass);
    // A separate variant for each pass that would call other work, as Backend::Run requires.
    std::uint64_t& variant =
        variants_[{phase, pass.rows, pass.training, pass.count, pass.accumulate, pass.bins}];
    if (variant == 0) variant = ++all_.variants;
    all_.first->Run(variant, pass, [&] { body(*first_); });
    all_.second->Run(variant, pass, [&] { body(*second_); });
    Check(name).Check(OutputsOf(spec_, phase, pass.rows), pass, sums);
  }

  Comparison& all_;
  const Spec spec_;
  const std::unique_ptr<OpType> first_, second_;
  std::map<std::tuple<Phase, int, bool, bool, bool, bool>, std::uint64_t> variants_;
};

// Null if either backend declines.
template <class Spec, class OpType>
std::unique_ptr<OpType> Pair(Comparison& all, const Spec& spec, std::unique_ptr<OpType> first,
                             std::unique_ptr<OpType> second) {
  if (!first || !second) return nullptr;
  return std::make_unique<ComparedOp<OpType, Spec>>(all, spec, std::move(first), std::move(second));
}

class CompareBackend final : public Backend {
  using Lines = std::vector<std::string>;

 public:
  CompareBackend(std::unique_ptr<Backend> first, std::unique_ptr<Backend> second,
                 const CompareOptions& options)
      : all_{options, std::move(first), std::move(second)} {}

  std::string Describe() const override {
    return "compare " + all_.options.first_name + " with " + all_.options.second_name + ": " +
           first().Describe() + "; " + second().Describe();
  }
  std::string InstructionSet() const override { return first().InstructionSet(); }
  Lines Diagnostics() const override { return Joined(&Backend::Diagnostics); }
  Lines Warnings() const override { return Joined(&Backend::Warnings); }
  std::byte* Allocate(std::size_t bytes) override { return all_.memory.Allocate(bytes); }
  std::size_t allocated_bytes() const override {
    return first().allocated_bytes() + second().allocated_bytes();
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    all_.memory.Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    first().Download(to, from, bytes);
  }
  void Synchronize() override { first().Synchronize(), second().Synchronize(); }
  SharedMemory AllocateShared(std::size_t bytes) override {
    return all_.memory.AllocateShared(bytes);
  }
  void Fetch(const SharedMemory& memory) override { first().Fetch(memory); }
  void Send(const SharedMemory& memory) override { all_.memory.Send(memory); }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    first().Read(tensor, rows, out);
  }
  std::int64_t most_values() const override {
    return std::min(first().most_values(), second().most_values());
  }
  bool rounds_by_tables() const override {
    return first().rounds_by_tables() && second().rounds_by_tables();
  }
  int BlockImages(const Shape& shape) const override {
    const int images = first().BlockImages(shape);
    if (second().BlockImages(shape) == images) return images;
    throw DeviceError("compare: the backends cut a tensor of " + ToString(shape) + " otherwise");
  }

  // Batch norms can compute channel moments to the same bits themselves, so they are left to them.
  // Largest magnitudes are compared after the op that rounds, which must record them itself.
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [this](auto s) -> std::unique_ptr<Op> {
          if constexpr (requires { s.recomputed; })
            if (s.recomputed) return nullptr;
          if constexpr (requires { s.y_moments; }) s.y_moments = {};
          if constexpr (requires { s.x_moments; }) s.x_moments = {}, s.x_stats = nullptr;
          if constexpr (requires { s.y_amax_deferred; })
            s.y_amax_deferred = s.dx.amax_deferred = false;
          if constexpr (requires { s.dy.amax_deferred; }) s.dy.amax_deferred = false;
          if constexpr (requires { s.branches; })
            for (Gradient& branch : s.branches) branch.amax_deferred = false;
          ForEachPointer(s, [this]<class T>(T* place) {  // an op may look at its rule
            if constexpr (std::is_same_v<T, scaling::LayerScaler>)
              if (place != nullptr) all_.memory.ShowOnHost(place, sizeof *place);
          });
          return Pair(all_, s, first().Make(s), second().Make(all_.memory.ForSecond(s)));
        },
        spec);
  }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override {
    return Pair(all_, s, first().MakeInput(s), second().MakeInput(all_.memory.ForSecond(s)));
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& spec) override {
    return std::visit(
        [this](const auto& s) {
          return Pair(all_, s, first().MakeLoss(s), second().MakeLoss(all_.memory.ForSecond(s)));
        },
        spec);
  }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    const bool exact = rule.kind == UpdateRule::Kind::kSgd;
    return Pair(
        all_, UpdateLabel{"update", exact, StoredBy(rule, slots)},
        first().MakeUpdate(rule, slots, watched),
        second().MakeUpdate(rule, all_.memory.ForSecond(slots), all_.memory.ForSecond(watched)));
  }
  std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot> slots) override {
    return Pair(all_, UpdateLabel{"average", true, StoredBy(slots)}, first().MakeAverage(slots),
                second().MakeAverage(all_.memory.ForSecond(slots)));
  }

 private:
  Lines Joined(Lines (Backend::*of)() const) const {
    Lines lines = (first().*of)();
    for (const std::string& line : (second().*of)()) lines.push_back(line);
    return lines;
  }
  Backend& first() const { return *all_.first; }
  Backend& second() const { return *all_.second; }
  Comparison all_;
};

}  // namespace
}  // namespace compare

std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options) {
  return std::make_unique<compare::CompareBackend>(std::move(first), std::move(second), options);
}

}  // namespace ada::backend
