// What products of fp8 operands become where the library has no plan for codes of one byte.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/ops/ops.h"
#include "cuda/host_layer.h"

namespace ada::backend::test {
namespace {

// The host executor's library without plans for codes.
class WithoutCodes final : public cuda::Products {
 public:
  explicit WithoutCodes(cuda::Stream& stream) : products_(cuda::MakeProducts(stream, {})) {}
  std::unique_ptr<cuda::Product> Make(const cuda::ProductRequest& request) override {
    if (HasCodes(request)) return nullptr;
    operands.push_back(request.operands);
    return products_->Make(request);
  }
  std::vector<Storage> operands;  // of the plans that were made

 private:
  std::unique_ptr<cuda::Products> products_;
};

struct Fp8Layer : HostLayer {
  explicit Fp8Layer(bool hardware, bool scaled) : HostLayer(products, kFp8E4M3), products(stream) {
    options.fp8_hardware = hardware;
    if (scaled) {
      spec.x = Make(spec.x.shape, kFp32), spec.x.format = kFp8E4M3;
      spec.x_own_scale = Share<scaling::TensorScaler>();
    }
    op = cuda::MakeOp(context, spec);
  }
  WithoutCodes products;
  std::unique_ptr<Op> op;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("fp8 declined: products run exactly on fp16, or in fp32 where a scale is in the way") {
    constexpr Storage kHalf = Storage::kF16, kWide = Storage::kF32;
    // Output, weight gradient, data gradient.
    const Fp8Layer plain(true, false), scaled(true, true), emulated(false, false);
    CHECK(plain.products.operands == std::vector<Storage>{kHalf, kHalf, kHalf});
    CHECK(scaled.products.operands == std::vector<Storage>{kWide, kWide, kHalf});
    CHECK(emulated.products.operands == std::vector<Storage>{kWide, kWide, kWide});
    REQUIRE(plain.remarks.diagnostics().size() == 3);
    CHECK(plain.remarks.diagnostics()[0] ==
          "layer conv1: no plan for the output of fp8_e4m3 operands in fp32, but for the output of "
          "fp16 operands in fp32");
    CHECK(scaled.remarks.diagnostics().size() == 3);
    CHECK(emulated.remarks.diagnostics().empty());
  }
}

}  // namespace ada::backend::test
#endif
