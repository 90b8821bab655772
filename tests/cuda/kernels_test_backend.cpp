// The tests of ops (tests/backend, with their independent references) on the kernels of the CUDA
// backend. The host executor's memory is the host's, so specs may point to what a test holds; only
// layers' scalers, of which ops look at the host's copy too, lie in shared memory and are copied
// there and back around each call.
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/passing_backend.h"
#include "backend/test_backend.h"

namespace ada::backend::test {
namespace {

// What a test holds, and its copy in shared memory.
struct ScalerCopy {
  scaling::LayerScaler* of_test;
  SharedMemory of_op;
};

class ScaledOp final : public Op {
 public:
  ScaledOp(std::unique_ptr<Op> op, std::vector<ScalerCopy> copies)
      : op_(std::move(op)), copies_(std::move(copies)) {}
  void Forward(const Pass& pass) override { op_->Forward(pass); }
  void RefreshWeights(const Pass& pass) override { op_->RefreshWeights(pass); }
  void Backward(const Pass& pass) override {
    for (const auto& [of_test, of_op] : copies_) std::memcpy(of_op.backend, of_test, of_op.bytes);
    op_->Backward(pass);
    for (const auto& [of_test, of_op] : copies_) std::memcpy(of_test, of_op.backend, of_op.bytes);
  }

 private:
  std::unique_ptr<Op> op_;
  std::vector<ScalerCopy> copies_;
};

class KernelsBackend final : public PassingBackend {
 public:
  KernelsBackend() : PassingBackend(MakeHostExecutedBackend()) {}
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [this](auto s) {
          std::vector<ScalerCopy> copies;
          if constexpr (requires { s.scaler; }) Share(s.scaler, copies);
          if constexpr (requires { s.scalers; })
            for (scaling::LayerScaler*& scaler : s.scalers) Share(scaler, copies);
          auto op = inner().Make(s);
          if (!op || copies.empty()) return op;
          return std::unique_ptr<Op>(std::make_unique<ScaledOp>(std::move(op), copies));
        },
        spec);
  }

 private:
  void Share(scaling::LayerScaler*& scaler, std::vector<ScalerCopy>& copies) {
    if (scaler == nullptr) return;
    const SharedMemory of_op = inner().AllocateShared(sizeof(scaling::LayerScaler));
    std::memcpy(of_op.host, scaler, of_op.bytes);
    copies.push_back({scaler, of_op});
    scaler = reinterpret_cast<scaling::LayerScaler*>(of_op.backend);
  }
};

}  // namespace

const bool kTestsCpu = false;
std::unique_ptr<Backend> MakeTestBackend(int /*threads*/) {
  return std::make_unique<KernelsBackend>();
}

}  // namespace ada::backend::test
