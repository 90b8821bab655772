// What an op asks of a library of products, and what becomes of it where the library has no plan:
// on the host executor, with libraries that are choosy.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/matmul/matmul_plans.h"
#include "cuda/host_context.h"
#include "error.h"

namespace ada::backend::test {
namespace {

// A library that has plans for some requests alone.
class Choosy final : public cuda::Matmuls {
 public:
  using Wanted = bool (*)(const cuda::MatmulRequest&);
  explicit Choosy(Wanted wanted) : wanted_(wanted) {}
  std::unique_ptr<cuda::Matmul> Make(const cuda::MatmulRequest& request) override {
    ++made;
    struct Noted final : cuda::Matmul {
      explicit Noted(cuda::MatmulArguments& to) : last(to) {}
      void Run(const cuda::MatmulArguments& arguments) override { last = arguments; }
      cuda::MatmulArguments& last;
    };
    return wanted_(request) ? std::make_unique<Noted>(last) : nullptr;
  }
  std::vector<std::string> TakeDiagnostics() override { return {"a diagnostic of the library"}; }
  int made = 0;  // or refused
  cuda::MatmulArguments last;

 private:
  Wanted wanted_;
};

struct Planning : HostContext {
  explicit Planning(Choosy::Wanted wanted) : HostContext(matmuls), matmuls(wanted) {}
  cuda::PlannedMatmul Plan(cuda::PlanOutput output, const std::array<cuda::Fp8, 2>& codes = {}) {
    cuda::MatmulGeometry g;
    g.x = {4, 6, 6, 16}, g.w = {16, 3, 3, 16}, g.y = {4, 6, 6, 16}, g.padding = {1, 1};
    return {
        context, "conv1",
        RequestsFor(cuda::MatmulKind::kData, g, 4,
                    codes[0] == cuda::Fp8::kNone ? Storage::kF16 : Storage::kF32, output, codes)};
  }
  Choosy matmuls;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("planned product: the best plan is taken without a word") {
    Planning p([](const cuda::MatmulRequest&) { return true; });
    CHECK(p.Plan(cuda::PlanOutput::kRounded).rounded());
    CHECK_FALSE(p.Plan(cuda::PlanOutput::kSums).rounded());
    CHECK(p.diagnostic_lines.diagnostics() ==
          std::vector<std::string>{"a diagnostic of the library"});
  }

  TEST_CASE("planned product: a factor goes to plans that were asked to multiply by it") {
    Planning p([](const cuda::MatmulRequest&) { return true; });
    const float alpha = 4;
    std::vector<std::byte> memory(1 << 16);
    for (const auto output : {cuda::PlanOutput::kSums, cuda::PlanOutput::kRounded,
                              cuda::PlanOutput::kScaledAndRounded}) {
      const cuda::TensorSpan span{memory.data(), Storage::kF16};
      p.Plan(output).Run(p.context, span, span, span, &alpha, memory.data());
      const bool multiplies = output == cuda::PlanOutput::kScaledAndRounded;
      CHECK(p.matmuls.last.scale == (multiplies ? &alpha : nullptr));
    }
  }

  TEST_CASE("planned product: equal requests are planned once, refused ones too") {
    Planning p([](const cuda::MatmulRequest& r) { return r.out == Storage::kF32; });
    const cuda::PlannedMatmul first = p.Plan(cuda::PlanOutput::kRounded);
    const int made = p.matmuls.made;
    CHECK(made >= 2);  // what was asked for first was refused
    const cuda::PlannedMatmul second = p.Plan(cuda::PlanOutput::kRounded);
    CHECK(p.matmuls.made == made);
    CHECK(second.request() == first.request());
    CHECK(p.matmuls.Get(first.request()) == p.matmuls.Get(second.request()));
    cuda::MatmulRequest other = first.request();
    other.geometry.x.n = other.geometry.y.n = 3;
    CHECK(p.matmuls.Get(other) != p.matmuls.Get(first.request()));
    CHECK(p.matmuls.made == made + 1);
  }

  TEST_CASE("planned product: a library that fails is asked again") {
    struct Failing final : cuda::Matmuls {
      std::unique_ptr<cuda::Matmul> Make(const cuda::MatmulRequest&) override {
        ++calls;
        throw DeviceError("no memory");
      }
      int calls = 0;
    } failing;
    for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(failing.Get({}), DeviceError);
    CHECK(failing.calls == 2);
  }

  TEST_CASE("planned product: without a rounding plan sums come out in fp32, told once") {
    Planning p([](const cuda::MatmulRequest& r) { return r.out == Storage::kF32; });
    for (int i = 0; i < 2; ++i) {
      const cuda::PlannedMatmul product = p.Plan(cuda::PlanOutput::kRounded);
      CHECK_FALSE(product.rounded());
      CHECK(product.request().operands == Storage::kF16);
    }
    REQUIRE(p.diagnostic_lines.diagnostics().size() == 2);
    CHECK(p.diagnostic_lines.diagnostics()[1] ==
          "layer conv1: no plan for the data gradient of fp16 operands in fp16, but for the data "
          "gradient of fp16 operands in fp32");
  }

  TEST_CASE("planned product: without a 16-bit plan operands are widened in scratch memory") {
    Planning p([](const cuda::MatmulRequest& r) { return r.operands == Storage::kF32; });
    const cuda::PlannedMatmul product = p.Plan(cuda::PlanOutput::kSums);
    p.Plan(cuda::PlanOutput::kRounded);
    const std::size_t values = 4 * 6 * 6 * 16 * 4;
    CHECK(product.scratch_bytes(Storage::kF16, Storage::kF32, true) >= 2 * values);
    CHECK(product.scratch_bytes(Storage::kF32, Storage::kF32, false) == 0);
    CHECK(p.diagnostic_lines.Warnings() ==
          std::vector<std::string>{
              "products of 16-bit operands run in fp32, without Tensor Cores, because cuDNN or "
              "cuBLAS has no plan for them: conv1 (data gradient); --verbose tells what was asked "
              "for"});
  }

  TEST_CASE("planned product: what was asked for in fp32, or stays in 16 bits, is no warning") {
    Planning sums([](const cuda::MatmulRequest& r) { return r.out == Storage::kF32; });
    sums.Plan(cuda::PlanOutput::kRounded);
    CHECK(sums.diagnostic_lines.Warnings().empty());
    Planning emulated([](const cuda::MatmulRequest& r) { return !HasCodes(r); });
    emulated.Plan(cuda::PlanOutput::kSums, {cuda::Fp8::kE5M2, cuda::Fp8::kE4M3});
    CHECK(emulated.diagnostic_lines.Warnings().empty());
  }

  TEST_CASE("remarks: one warning names layers and their products, the first eight of many") {
    cuda::DiagnosticLines diagnostic_lines;
    CHECK(diagnostic_lines.Warnings().empty());
    diagnostic_lines.Widened("conv1", "output");
    diagnostic_lines.Widened("conv2", "output");
    diagnostic_lines.Widened("conv1", "weight gradient");
    diagnostic_lines.Widened("conv1", "output");
    REQUIRE(diagnostic_lines.Warnings().size() == 1);
    CHECK(diagnostic_lines.Warnings()[0].find(
              ": conv1 (output, weight gradient), conv2 (output);") != std::string::npos);
    for (int i = 3; i <= 10; ++i) diagnostic_lines.Widened("conv" + std::to_string(i), "output");
    REQUIRE(diagnostic_lines.Warnings().size() == 1);
    CHECK(diagnostic_lines.Warnings()[0].find("conv8 (output) and 2 more;") != std::string::npos);
  }

  TEST_CASE("planned product: a weight gradient may read a copy with more channels") {
    Planning p([](const cuda::MatmulRequest& r) {
      return r.operands == Storage::kF32 || r.geometry.x.c % 8 == 0;
    });
    cuda::MatmulGeometry g;
    g.x = {4, 6, 6, 3}, g.w = {16, 3, 3, 3}, g.y = {4, 6, 6, 16}, g.padding = {1, 1};
    const cuda::PlannedMatmul product(
        p.context, "conv1",
        RequestsFor(cuda::MatmulKind::kWeights, g, 4, Storage::kF16, cuda::PlanOutput::kSums));
    CHECK(product.request().operands == Storage::kF16);
    CHECK(product.request().geometry.w.c == 8);
    CHECK(p.diagnostic_lines.Warnings().empty());
    REQUIRE(p.diagnostic_lines.diagnostics().size() == 2);
    CHECK(p.diagnostic_lines.diagnostics()[1] ==
          "layer conv1: no plan for the weight gradient of fp16 operands in fp32, but for the "
          "weight gradient of fp16 operands in fp32 with 8 input channels");
    const std::size_t copy = 4 * 6 * 6 * 8 * 2, sums = 16 * 3 * 3 * 8 * 4;
    CHECK(product.scratch_bytes(Storage::kF16, Storage::kF16, true) ==
          cuda::Aligned(copy) + cuda::Aligned(sums));
  }

  TEST_CASE("planned product: codes are packed into scratch memory, where the library has a plan") {
    const std::array<cuda::Fp8, 2> codes = {cuda::Fp8::kE5M2, cuda::Fp8::kE4M3};
    const std::size_t values = 4 * 6 * 6 * 16 + 16 * 3 * 3 * 16;
    Planning all([](const cuda::MatmulRequest&) { return true; });
    const cuda::PlannedMatmul coded = all.Plan(cuda::PlanOutput::kSums, codes);
    CHECK(HasCodes(coded.request()));
    CHECK(coded.scratch_bytes(Storage::kF32, Storage::kF32, false) >= values);

    Planning p([](const cuda::MatmulRequest& r) { return !HasCodes(r); });
    const cuda::PlannedMatmul emulated = p.Plan(cuda::PlanOutput::kSums, codes);
    CHECK(emulated.scratch_bytes(Storage::kF32, Storage::kF32, false) == 0);
    REQUIRE(p.diagnostic_lines.diagnostics().size() == 2);
    CHECK(p.diagnostic_lines.diagnostics()[1] ==
          "layer conv1: no plan for the data gradient of fp8_e5m2 and fp8_e4m3 operands in fp32, "
          "but for the data gradient of fp32 operands in fp32");
  }

  TEST_CASE("planned product: no plan at all is an error that names the layer") {
    Planning p([](const cuda::MatmulRequest&) { return false; });
    CHECK_THROWS_AS(p.Plan(cuda::PlanOutput::kSums), DeviceError);
  }
}

}  // namespace ada::backend::test
#endif
