// The CPU backend behaving like a device: memory that ops write and the host reads exists twice,
// and copies arrive at the next Synchronize.
#pragma once
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/passing_backend.h"

namespace ada::testing {

class SplitMemory final : public backend::test::PassingBackend {
 public:
  explicit SplitMemory(int threads) : PassingBackend(backend::cpu::MakeCpuBackend(threads)) {}

  std::int64_t waits() const { return waits_; }

  backend::SharedMemory AllocateShared(std::size_t bytes) override {
    return {Allocate(bytes), Allocate(bytes), bytes};
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

 private:
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> fetched_;  // not arrived yet
  std::int64_t waits_ = 0;
};

}  // namespace ada::testing
