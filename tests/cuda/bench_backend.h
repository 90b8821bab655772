// Lets the CPU backend's own tests of ops (tests/backend, with their independent truths) run on the
// kernels of the CUDA backend: included before anything else in their files. The host executor's
// memory is the host's, so specs may point to what a test holds; only scalers, of which ops look at
// the host's copy too, lie in shared memory and are copied there and back around each call.
#pragma once
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"

namespace ada::backend::test {

class ScaledOp final : public Op {
 public:
  ScaledOp(std::unique_ptr<Op> op, scaling::LayerScaler* tests, const SharedMemory& ops)
      : op_(std::move(op)), tests_(tests), ops_(ops) {}
  void Forward(const Pass& pass) override { op_->Forward(pass); }
  void RefreshWeights(const Pass& pass) override { op_->RefreshWeights(pass); }
  void Backward(const Pass& pass) override {
    std::memcpy(ops_.backend, tests_, ops_.bytes);
    op_->Backward(pass);
    std::memcpy(tests_, ops_.backend, ops_.bytes);
  }

 private:
  std::unique_ptr<Op> op_;
  scaling::LayerScaler* tests_;
  SharedMemory ops_;
};

class BenchBackend final : public Backend {
 public:
  BenchBackend() : cuda_(MakeHostExecutedBackend()) {}
  std::string Describe() const override { return cuda_->Describe(); }
  std::string InstructionSet() const override { return cuda_->InstructionSet(); }
  std::byte* Allocate(std::size_t bytes) override { return cuda_->Allocate(bytes); }
  std::size_t allocated_bytes() const override { return cuda_->allocated_bytes(); }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    cuda_->Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    cuda_->Download(to, from, bytes);
  }
  void Synchronize() override { cuda_->Synchronize(); }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    cuda_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override { return cuda_->BlockImages(shape); }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override { return cuda_->MakeInput(s); }
  std::unique_ptr<Op> MakeConv2d(const Conv2dSpec& s) override {
    return Scaled(s, &Backend::MakeConv2d);
  }
  std::unique_ptr<Op> MakeLinear(const LinearSpec& s) override {
    return Scaled(s, &Backend::MakeLinear);
  }
  std::unique_ptr<Op> MakeBatchNorm(const BatchNormSpec& s) override {
    return cuda_->MakeBatchNorm(s);
  }
  std::unique_ptr<Op> MakeRelu(const ReluSpec& s) override { return cuda_->MakeRelu(s); }
  std::unique_ptr<Op> MakeMaxPool(const MaxPoolSpec& s) override { return cuda_->MakeMaxPool(s); }
  std::unique_ptr<Op> MakeAvgPool(const AvgPoolSpec& s) override { return cuda_->MakeAvgPool(s); }
  std::unique_ptr<Op> MakeAdd(const AddSpec& s) override { return cuda_->MakeAdd(s); }
  std::unique_ptr<Op> MakeShortcut(const ShortcutSpec& s) override {
    return cuda_->MakeShortcut(s);
  }
  std::unique_ptr<Op> MakeFlatten(const FlattenSpec& s) override { return cuda_->MakeFlatten(s); }
  std::unique_ptr<Op> MakeDropout(const DropoutSpec& s) override { return cuda_->MakeDropout(s); }
  std::unique_ptr<Op> MakeScale(const ScaleSpec& s) override {
    return Scaled(s, &Backend::MakeScale);
  }
  std::unique_ptr<Op> MakeBranchSum(const BranchSumSpec& s) override {
    return cuda_->MakeBranchSum(s);
  }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override { return cuda_->MakeLoss(s); }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    return cuda_->MakeUpdate(rule, std::move(slots), std::move(watched));
  }

 private:
  template <class Spec>
  std::unique_ptr<Op> Scaled(Spec spec, std::unique_ptr<Op> (Backend::*make)(const Spec&)) {
    scaling::LayerScaler* tests = spec.scaler;
    if (tests == nullptr) return (cuda_.get()->*make)(spec);
    const SharedMemory ops = cuda_->AllocateShared(sizeof(scaling::LayerScaler));
    std::memcpy(ops.host, tests, ops.bytes);
    spec.scaler = reinterpret_cast<scaling::LayerScaler*>(ops.backend);
    auto op = (cuda_.get()->*make)(spec);
    return op ? std::make_unique<ScaledOp>(std::move(op), tests, ops) : nullptr;
  }
  std::unique_ptr<Backend> cuda_;
};

}  // namespace ada::backend::test

#define ADA_BENCH_BACKEND(threads) (static_cast<void>(threads), std::make_unique<BenchBackend>())
