// The factory of compared ops; see compare_backend.h.
#include "backend/compare/compare_backend.h"

#include <utility>

#include "backend/compare/compared_op.h"
#include "backend/compare/specs.h"
#include "core/error.h"

namespace ada::backend {
namespace compare {
namespace {

class CompareBackend final : public Backend {
 public:
  CompareBackend(std::unique_ptr<Backend> first, std::unique_ptr<Backend> second,
                 const CompareOptions& options)
      : options_(options),
        first_(std::move(first)),
        second_(std::move(second)),
        mirror_(*first_, *second_),
        session_{mirror_, options.slack, options.report, options.fp8_sums} {
    if (session_.report) return;
    session_.report = [this](const Difference& difference) {
      throw DeviceError("compare: " +
                        ToString(difference, options_.first_name, options_.second_name));
    };
  }

  std::string Describe() const override {
    return "compare " + options_.first_name + " with " + options_.second_name + ": " +
           first_->Describe() + "; " + second_->Describe();
  }
  std::string InstructionSet() const override { return first_->InstructionSet(); }
  std::vector<std::string> Diagnostics() const override {
    std::vector<std::string> all = first_->Diagnostics();
    for (const std::string& remark : second_->Diagnostics()) all.push_back(remark);
    return all;
  }

  std::byte* Allocate(std::size_t bytes) override { return mirror_.Allocate(bytes); }
  std::size_t allocated_bytes() const override {
    return first_->allocated_bytes() + second_->allocated_bytes();
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    mirror_.Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    first_->Download(to, from, bytes);
  }
  void Synchronize() override { first_->Synchronize(), second_->Synchronize(); }
  SharedMemory AllocateShared(std::size_t bytes) override { return mirror_.AllocateShared(bytes); }
  void Fetch(const SharedMemory& memory) override { first_->Fetch(memory); }
  void Send(const SharedMemory& memory) override { mirror_.Send(memory); }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    first_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override {
    const int images = first_->BlockImages(shape);
    if (second_->BlockImages(shape) != images)
      throw DeviceError("compare: the two backends cut a tensor of " + ToString(shape) +
                        " into blocks of " + std::to_string(images) + " and " +
                        std::to_string(second_->BlockImages(shape)) + " images");
    return images;
  }

  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override {
    return CompareInput(session_, first_->MakeInput(s), second_->MakeInput(ForSecond(mirror_, s)),
                        s);
  }
  std::unique_ptr<Op> MakeConv2d(const Conv2dSpec& s) override {
    return MakeProduct("conv2d", s, &Backend::MakeConv2d);
  }
  std::unique_ptr<Op> MakeLinear(const LinearSpec& s) override {
    return MakeProduct("linear", s, &Backend::MakeLinear);
  }
  std::unique_ptr<Op> MakeBatchNorm(const BatchNormSpec& spec) override {
    if (spec.recomputed) return nullptr;
    BatchNormSpec s = spec;
    s.x_moments = {};
    auto first = first_->MakeBatchNorm(s), second = second_->MakeBatchNorm(ForSecond(mirror_, s));
    if (!first || !second) return nullptr;
    return CompareBatchNorm(session_, {s.layer, "batch_norm"}, std::move(first), std::move(second),
                            s);
  }
  std::unique_ptr<Op> MakeRelu(const ReluSpec& s) override {
    return MakeExact("relu", s, &Backend::MakeRelu);
  }
  std::unique_ptr<Op> MakeMaxPool(const MaxPoolSpec& s) override {
    return MakeExact("max_pool", s, &Backend::MakeMaxPool);
  }
  std::unique_ptr<Op> MakeAvgPool(const AvgPoolSpec& s) override {
    return MakeExact("avg_pool", s, &Backend::MakeAvgPool);
  }
  std::unique_ptr<Op> MakeAdd(const AddSpec& s) override {
    return MakeExact("add", s, &Backend::MakeAdd);
  }
  std::unique_ptr<Op> MakeShortcut(const ShortcutSpec& s) override {
    return MakeExact("shortcut", s, &Backend::MakeShortcut);
  }
  std::unique_ptr<Op> MakeFlatten(const FlattenSpec& s) override {
    return MakeExact("flatten", s, &Backend::MakeFlatten);
  }
  std::unique_ptr<Op> MakeDropout(const DropoutSpec& s) override {
    return MakeExact("dropout", s, &Backend::MakeDropout);
  }
  std::unique_ptr<Op> MakeScale(const ScaleSpec& s) override {
    return MakeExact("scale", s, &Backend::MakeScale);
  }
  std::unique_ptr<Op> MakeBranchSum(const BranchSumSpec& s) override {
    return MakeExact("branch sum", s, &Backend::MakeBranchSum);
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override {
    return CompareLoss(session_, first_->MakeLoss(s), second_->MakeLoss(ForSecond(mirror_, s)), s);
  }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    std::vector<UpdateSlot> other;
    for (const UpdateSlot& slot : slots) other.push_back(ForSecond(mirror_, slot));
    auto first = first_->MakeUpdate(rule, slots, watched);
    for (WatchedRounding& w : watched) w.stats = mirror_.Second(w.stats);
    auto second = second_->MakeUpdate(rule, std::move(other), std::move(watched));
    return CompareUpdate(session_, std::move(first), std::move(second), rule, std::move(slots));
  }

 private:
  // Channel moments are what batch norms take themselves to the same bits: they are left to them.
  template <class Spec>
  std::unique_ptr<Op> MakeProduct(const char* kind, Spec s,
                                  std::unique_ptr<Op> (Backend::*make)(const Spec&)) {
    if (s.recomputed) return nullptr;
    s.y_moments = {};
    mirror_.ShowOnHost(s.scaler);
    auto first = (first_.get()->*make)(s), second = (second_.get()->*make)(ForSecond(mirror_, s));
    return CompareProduct(session_, {s.layer, kind}, std::move(first), std::move(second), s);
  }
  template <class Spec>
  std::unique_ptr<Op> MakeExact(const char* kind, const Spec& s,
                                std::unique_ptr<Op> (Backend::*make)(const Spec&)) {
    if constexpr (requires { s.scaler; }) mirror_.ShowOnHost(s.scaler);
    auto op = std::make_unique<ExactOp>(session_, Name{s.layer, kind}, (first_.get()->*make)(s),
                                        (second_.get()->*make)(ForSecond(mirror_, s)));
    if constexpr (requires { s.y_style; }) {
      op->forward = {OutputOf("y", s.y, s.y_style, s.y_stats)};
    } else if constexpr (requires { s.y; }) {
      op->forward = {OutputOf("y", s.y)};
    }
    if constexpr (requires { s.dx; }) {
      if (s.dx) op->backward = {OutputOf("dx", s.dx)};
    }
    if constexpr (requires { s.scaler; }) op->scaler = s.scaler;
    if constexpr (requires { s.decision; })
      op->decision = s.decision, op->backward = {OutputOf("sum", s.sum)};
    return op;
  }

  const CompareOptions options_;
  std::unique_ptr<Backend> first_, second_;
  AddressMap mirror_;
  Session session_;
};

}  // namespace
}  // namespace compare

std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options) {
  return std::make_unique<compare::CompareBackend>(std::move(first), std::move(second), options);
}

}  // namespace ada::backend
