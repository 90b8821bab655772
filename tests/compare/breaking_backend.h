// A CPU backend with a mistake in one place: what the compare backend has to find.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace ada::backend::test {

// What goes wrong: after `phase` of an op of this layer, `damage` is done to its spec's tensors.
struct Mistake {
  std::string layer;
  bool backward = false;
  std::function<void(const void* spec)> damage;
};

template <class Spec>
class DamagedOp final : public Op {
 public:
  DamagedOp(std::unique_ptr<Op> op, const Spec& spec, const Mistake& mistake)
      : op_(std::move(op)), spec_(spec), mistake_(mistake) {}
  void Forward(const Pass& pass) override {
    op_->Forward(pass);
    if (!mistake_.backward) mistake_.damage(&spec_);
  }
  void Backward(const Pass& pass) override {
    op_->Backward(pass);
    if (mistake_.backward) mistake_.damage(&spec_);
  }
  void RefreshWeights(const Pass& pass) override { op_->RefreshWeights(pass); }

 private:
  std::unique_ptr<Op> op_;
  const Spec spec_;
  const Mistake& mistake_;
};

class BreakingBackend final : public Backend {
 public:
  explicit BreakingBackend(Mistake mistake)
      : cpu_(cpu::MakeCpuBackend(1)), mistake_(std::move(mistake)) {}

  std::string Describe() const override { return "broken"; }
  std::string InstructionSet() const override { return cpu_->InstructionSet(); }
  std::byte* Allocate(std::size_t bytes) override { return cpu_->Allocate(bytes); }
  std::size_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    cpu_->Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    cpu_->Download(to, from, bytes);
  }
  void Synchronize() override {}
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    cpu_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override { return cpu_->BlockImages(shape); }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override { return cpu_->MakeInput(s); }
  std::unique_ptr<Op> MakeConv2d(const Conv2dSpec& s) override {
    return Damage(cpu_->MakeConv2d(s), s);
  }
  std::unique_ptr<Op> MakeLinear(const LinearSpec& s) override {
    return Damage(cpu_->MakeLinear(s), s);
  }
  std::unique_ptr<Op> MakeBatchNorm(const BatchNormSpec& s) override {
    return Damage(cpu_->MakeBatchNorm(s), s);
  }
  std::unique_ptr<Op> MakeRelu(const ReluSpec& s) override { return Damage(cpu_->MakeRelu(s), s); }
  std::unique_ptr<Op> MakeMaxPool(const MaxPoolSpec& s) override {
    return Damage(cpu_->MakeMaxPool(s), s);
  }
  std::unique_ptr<Op> MakeAvgPool(const AvgPoolSpec& s) override {
    return Damage(cpu_->MakeAvgPool(s), s);
  }
  std::unique_ptr<Op> MakeAdd(const AddSpec& s) override { return Damage(cpu_->MakeAdd(s), s); }
  std::unique_ptr<Op> MakeShortcut(const ShortcutSpec& s) override {
    return Damage(cpu_->MakeShortcut(s), s);
  }
  std::unique_ptr<Op> MakeFlatten(const FlattenSpec& s) override {
    return Damage(cpu_->MakeFlatten(s), s);
  }
  std::unique_ptr<Op> MakeDropout(const DropoutSpec& s) override {
    return Damage(cpu_->MakeDropout(s), s);
  }
  std::unique_ptr<Op> MakeScale(const ScaleSpec& s) override {
    return Damage(cpu_->MakeScale(s), s);
  }
  std::unique_ptr<Op> MakeBranchSum(const BranchSumSpec& s) override {
    return Damage(cpu_->MakeBranchSum(s), s);
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override { return cpu_->MakeLoss(s); }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    return cpu_->MakeUpdate(rule, std::move(slots), std::move(watched));
  }

 private:
  template <class Spec>
  std::unique_ptr<Op> Damage(std::unique_ptr<Op> op, const Spec& spec) {
    if (!op || spec.layer != mistake_.layer) return op;
    return std::make_unique<DamagedOp<Spec>>(std::move(op), spec, mistake_);
  }

  std::unique_ptr<Backend> cpu_;
  const Mistake mistake_;
};

}  // namespace ada::backend::test
