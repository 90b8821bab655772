// What products of fp8 operands become where the library has no plan for codes of one byte.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/context.h"
#include "cuda/host_layer.h"

namespace ada::backend::test {
namespace {

// The host executor's library without plans for codes.
class WithoutCodes final : public cuda::Matmuls {
 public:
  explicit WithoutCodes(cuda::Stream& stream) : matmuls_(cuda::MakeMatmuls(stream, {})) {}
  std::unique_ptr<cuda::Matmul> Make(const cuda::MatmulRequest& request) override {
    if (HasCodes(request)) return nullptr;
    operands.push_back(request.operands);
    return matmuls_->Make(request);
  }
  std::vector<Storage> operands;  // of the plans that were made

 private:
  std::unique_ptr<cuda::Matmuls> matmuls_;
};

struct Fp8Layer : HostLayer {
  explicit Fp8Layer(bool hardware, bool scaled) : HostLayer(matmuls, kFp8E4M3), matmuls(stream) {
    options.fp8_hardware = hardware;
    if (scaled) {
      spec.x = Make(spec.x.shape, kFp32), spec.x.format = kFp8E4M3;
      spec.x_per_tensor_scale = Share<scaling::TensorScaler>();
    }
    op = cuda::MakeOp(context, spec);
  }
  WithoutCodes matmuls;
  std::unique_ptr<Op> op;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("fp8 declined: products run exactly on fp16, or in fp32 where a scale is in the way") {
    constexpr Storage kHalf = Storage::kF16, kWide = Storage::kF32;
    // Output, weight gradient, data gradient.
    const Fp8Layer plain(true, false), scaled(true, true), emulated(false, false);
    CHECK(plain.matmuls.operands == std::vector<Storage>{kHalf, kHalf, kHalf});
    CHECK(scaled.matmuls.operands == std::vector<Storage>{kWide, kWide, kHalf});
    CHECK(emulated.matmuls.operands == std::vector<Storage>{kWide, kWide, kWide});
    REQUIRE(plain.diagnostic_lines.diagnostics().size() == 3);
    CHECK(plain.diagnostic_lines.diagnostics()[0] ==
          "layer conv1: no plan for the output of fp8_e4m3 operands in fp32, but for the output of "
          "fp16 operands in fp32");
    CHECK(scaled.diagnostic_lines.diagnostics().size() == 3);
    CHECK(emulated.diagnostic_lines.diagnostics().empty());
  }
}

}  // namespace ada::backend::test
#endif
