// The CPU backend as a device would be: what ops write and people read lies twice, and copies
// arrive at the next Synchronize.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"

namespace ada::testing {

class SplitMemory final : public backend::Backend {
 public:
  explicit SplitMemory(int threads) : cpu_(backend::cpu::MakeCpuBackend(threads)) {}

  std::int64_t waits() const { return waits_; }

  backend::SharedMemory AllocateShared(std::size_t bytes) override {
    return {cpu_->Allocate(bytes), cpu_->Allocate(bytes), bytes};
  }
  void Fetch(const backend::SharedMemory& memory) override {
    fetched_.emplace_back(memory.host,
                          std::vector<std::byte>(memory.backend, memory.backend + memory.bytes));
  }
  void Send(const backend::SharedMemory& memory) override {
    CHECK(fetched_.empty());  // it would send what is about to be overwritten
    std::memcpy(memory.backend, memory.host, memory.bytes);
  }
  void Synchronize() override {
    ++waits_;
    for (const auto& [to, bytes] : fetched_) std::memcpy(to, bytes.data(), bytes.size());
    fetched_.clear();
  }

  std::string Describe() const override { return cpu_->Describe(); }
  std::string InstructionSet() const override { return cpu_->InstructionSet(); }
  std::byte* Allocate(std::size_t bytes) override { return cpu_->Allocate(bytes); }
  std::size_t allocated_bytes() const override { return cpu_->allocated_bytes(); }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    cpu_->Upload(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    cpu_->Download(to, from, bytes);
  }
  void Read(const Tensor& tensor, std::int64_t rows, float* out) override {
    cpu_->Read(tensor, rows, out);
  }
  int BlockImages(const Shape& shape) const override { return cpu_->BlockImages(shape); }
  std::unique_ptr<backend::InputOp> MakeInput(const backend::InputSpec& s) override {
    return cpu_->MakeInput(s);
  }
#define ADA_PASS_ON(Name)                                                          \
  std::unique_ptr<backend::Op> Make##Name(const backend::Name##Spec& s) override { \
    return cpu_->Make##Name(s);                                                    \
  }
  ADA_PASS_ON(Conv2d)
  ADA_PASS_ON(Linear)
  ADA_PASS_ON(BatchNorm)
  ADA_PASS_ON(Relu)
  ADA_PASS_ON(MaxPool)
  ADA_PASS_ON(AvgPool)
  ADA_PASS_ON(Add)
  ADA_PASS_ON(Shortcut)
  ADA_PASS_ON(Flatten)
  ADA_PASS_ON(Dropout)
  ADA_PASS_ON(Scale)
  ADA_PASS_ON(BranchSum)
#undef ADA_PASS_ON
  std::unique_ptr<backend::LossOp> MakeLoss(const backend::LossSpec& s) override {
    return cpu_->MakeLoss(s);
  }
  std::unique_ptr<backend::UpdateOp> MakeUpdate(
      const backend::UpdateRule& rule, std::vector<backend::UpdateSlot> slots,
      std::vector<backend::WatchedRounding> watched) override {
    return cpu_->MakeUpdate(rule, std::move(slots), std::move(watched));
  }

 private:
  std::unique_ptr<backend::Backend> cpu_;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> fetched_;  // not arrived yet
  std::int64_t waits_ = 0;
};

}  // namespace ada::testing
