// Ops on the CPU backend and on the kernels of the CUDA backend at once, through the compare
// backend: whatever an op writes (values, counts, moments, histograms, scales, decisions) is
// compared within the tolerances of backend/compare/tolerances.h.
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/compare/tolerances.h"
#include "backend/moments.h"
#include "cuda/on_both.h"

namespace ada::backend::test {

// A device's matrix units truncate sums; the host executor adds up in fp32 like the CPU.
#ifdef ADA_CUDA_DEVICE
inline constexpr double kSlack = 8;
#else
inline constexpr double kSlack = 1;
#endif

class Agreement {
 public:
  // With the CPU backend; `second`: what is compared with it.
  explicit Agreement(std::unique_ptr<Backend> second = MakeBackendUnderTest())
      : lab(Make(std::move(second))) {}
  ~Agreement() {
    CHECK_MESSAGE(differences_ == 0, differences_ << " calls differ, first: " << first_);
  }
  // What was found first; from then on nothing was.
  std::string Take() {
    differences_ = 0;
    return std::exchange(first_, "");
  }
  Agreement(const Agreement&) = delete;

  // A way of rounding, with a histogram of what is rounded.
  RoundingStyle Style(bool stochastic, std::uint64_t stream, float scale) {
    RoundingStyle style;
    style.stochastic = stochastic, style.stream = stream;
    if (scale != 0) style.per_tensor_scale = lab.Share(scaling::TensorScaler{scale});
    style.bins = lab.Share(ExponentBins());
    return style;
  }
  // What a tensor of a style is made of: scaled ones lie in fp32.
  Tensor Out(const Shape& shape, const NumberFormat& format, const RoundingStyle& style) {
    return lab.Make(shape, format, {}, style.per_tensor_scale != nullptr);
  }
  Gradient OutGradient(const Shape& shape, const NumberFormat& format, const RoundingStyle& style) {
    Gradient g = lab.MakeGradient(shape, format);
    g.tensor = Out(shape, format, style), g.style = style;
    return g;
  }
  // With the moments that its producer left.
  Gradient InGradient(const Shape& shape, const NumberFormat& format, const Values& values,
                      float scale) {
    Gradient g = lab.MakeGradient(shape, format, scale, values);
    g.moments = lab.Share(MomentsOf(lab.Get(g.tensor)));
    return g;
  }

  // Several steps over all and fewer images, counting and not, as one batch and as a later
  // micro-batch: each combination often enough to be recorded and replayed with other numbers.
  void Steps(Op& op, const Shape& x, const std::function<void(int)>& before = {}) {
    for (int step = 0; step < 7; ++step) {
      if (before) before(step);
      Pass pass;
      pass.count = pass.bins = step % 3 != 1;
      pass.accumulate = step == 2;
      pass.rows = static_cast<int>(step % 3 == 1 && x.n > 1 ? x.n - 1 : x.n);
      pass.loss_terms = pass.rows + step, pass.loss_scale = static_cast<float>(1 << step);
      pass.seed = 0x123456789abcdefull, pass.draw = static_cast<std::uint64_t>(40 + step);
      pass.edge = step == 0 ? INFINITY : 0.25 / step;
      op.RefreshWeights(pass);
      op.Forward(pass);
      op.Backward(pass);
    }
  }

  Lab lab;

 private:
  std::unique_ptr<Backend> Make(std::unique_ptr<Backend> second) {
    CompareOptions options;
    options.first_name = "cpu", options.second_name = "cuda", options.slack = kSlack;
    options.report = [this](const compare::Difference& difference) {
      if (differences_++ == 0) first_ = ToString(difference, "cpu", "cuda");
    };
    return MakeCompareBackend(cpu::MakeCpuBackend(1), std::move(second), options);
  }
  int differences_ = 0;
  std::string first_;
};

// Formats by role and how each tensor is rounded: every mixture that rounding takes apart.
struct Roles {
  NumberFormat x, w, y, dy, dx, dw;
  bool stochastic = false;
  float y_scale = 0, dx_scale = 0;
};
inline const std::vector<Roles>& AllRoles() {
  static const std::vector<Roles> roles = [] {
    NumberFormat full8 = kFp8E4M3, full16 = kFp16;
    full8.saturate = full16.saturate = true;
    const NumberFormat odd{6, 12, 31}, fnuz{4, 3, 8, false, true, false},
        fp4{2, 1, 1, false, false};
    return std::vector<Roles>{{kFp32, kFp32, kFp32, kFp32, kFp32, kFp32},
                              {kFp16, kFp16, kFp16, kFp16, kFp16, kFp32},
                              {kBf16, kBf16, kBf16, kBf16, kBf16, kFp32},
                              {kFp16, kBf16, kFp16, kFp32, kBf16, kFp16},
                              {kFp32, kFp16, kBf16, kBf16, kFp16, kBf16},
                              {kBf16, kFp8E4M3, kFp8E4M3, kFp8E5M2, kFp8E5M2, kFp8E5M2},
                              {kCb16, odd, fnuz, full16, full8, kCb16},
                              {odd, fp4, fp4, kCb16, odd, odd},
                              {kFp16, kFp16, kFp16, kFp16, kFp16, kFp16, true},
                              {kFp16, kFp8E4M3, kFp8E4M3, kFp16, kFp8E5M2, kFp16, true, 0, 0},
                              {kFp32, kFp8E4M3, kFp8E4M3, kFp32, kFp8E5M2, kFp32, false, 13, 640},
                              {kFp16, full8, full8, kBf16, kFp8E5M2, kBf16, true, 13, 640}};
  }();
  return roles;
}

}  // namespace ada::backend::test
