// The tests of ops (tests/backend, with their independent references) on the kernels of the CUDA
// backend. The host executor's memory is the host's, so specs may point to what a test holds; only
// layers' scalers, of which ops look at the host's copy too, lie in shared memory and are copied
// there and back around each call.
#include <cstring>
#include <utility>
#include <variant>

#include "backend/cuda/cuda_backend.h"
#include "backend/passing_backend.h"
#include "backend/test_backend.h"

namespace ada::backend::test {
namespace {

class ScaledOp final : public Op {
 public:
  ScaledOp(std::unique_ptr<Op> op, scaling::LayerScaler* of_test, const SharedMemory& of_op)
      : op_(std::move(op)), of_test_(of_test), of_op_(of_op) {}
  void Forward(const Pass& pass) override { op_->Forward(pass); }
  void RefreshWeights(const Pass& pass) override { op_->RefreshWeights(pass); }
  void Backward(const Pass& pass) override {
    std::memcpy(of_op_.backend, of_test_, of_op_.bytes);
    op_->Backward(pass);
    std::memcpy(of_test_, of_op_.backend, of_op_.bytes);
  }

 private:
  std::unique_ptr<Op> op_;
  scaling::LayerScaler* of_test_;
  SharedMemory of_op_;
};

class KernelsBackend final : public PassingBackend {
 public:
  KernelsBackend() : PassingBackend(MakeHostExecutedBackend()) {}
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    return std::visit(
        [this](auto s) {
          if constexpr (requires { s.scaler; }) return MakeScaled(s);
          return inner().Make(s);
        },
        spec);
  }

 private:
  template <class Spec>
  std::unique_ptr<Op> MakeScaled(Spec spec) {
    scaling::LayerScaler* of_test = spec.scaler;
    if (of_test == nullptr) return inner().Make(spec);
    const SharedMemory of_op = inner().AllocateShared(sizeof(scaling::LayerScaler));
    std::memcpy(of_op.host, of_test, of_op.bytes);
    spec.scaler = reinterpret_cast<scaling::LayerScaler*>(of_op.backend);
    auto op = inner().Make(spec);
    return op ? std::make_unique<ScaledOp>(std::move(op), of_test, of_op) : nullptr;
  }
};

}  // namespace

std::unique_ptr<Backend> MakeTestBackend(int /*threads*/) {
  return std::make_unique<KernelsBackend>();
}

}  // namespace ada::backend::test
