// A backend that passes every call on to another: tests derive from it and override what they watch
// or change.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace ada::backend::test {

class PassingBackend : public Backend {
 public:
  explicit PassingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string Describe() const override { return inner_->Describe(); }
  std::string InstructionSet() const override { return inner_->InstructionSet(); }
  std::byte* Allocate(std::size_t bytes) override { return inner_->Allocate(bytes); }
  std::size_t allocated_bytes() const override { return inner_->allocated_bytes(); }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    inner_->Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    inner_->Download(to, from, bytes);
  }
  void Synchronize() override { inner_->Synchronize(); }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    inner_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override { return inner_->BlockImages(shape); }
  std::unique_ptr<Op> Make(const OpSpec& spec) override { return inner_->Make(spec); }
  std::unique_ptr<InputOp> MakeInput(const InputSpec& s) override { return inner_->MakeInput(s); }
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& s) override { return inner_->MakeLoss(s); }
  std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) override {
    return inner_->MakeUpdate(rule, std::move(slots), std::move(watched));
  }
  std::unique_ptr<AverageOp> MakeAverage(std::vector<AverageSlot> slots) override {
    return inner_->MakeAverage(std::move(slots));
  }

 protected:
  Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace ada::backend::test
