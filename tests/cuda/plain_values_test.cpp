// Kernels of the plain case, in vec8, against the general ones: what both store has the same bits.
// A tensor that lies 8 bytes off a boundary of 16 is the general kernels'.
#include <doctest/doctest.h>

#include "cuda/on_both.h"
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/kernels/batch_norm.h"
#endif

namespace ada::backend::test {
namespace {

std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }
Pass PassOf(int rows, bool count) {
  Pass pass;
  pass.rows = rows, pass.loss_terms = rows, pass.count = count;
  return pass;
}

// Tensors of 16 bits, on boundaries of 16 bytes or between two of them.
struct Place {
  Lab& lab;
  std::size_t off;
  Tensor Make(const Shape& shape, const NumberFormat& format, const Values& values = {}) const {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = lab->Allocate(t.bytes() + 16) + off;
    if (!values.empty()) lab.Set(t, values);
    return t;
  }
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format, float scale,
                        const Values& values) const {
    Gradient g = lab.MakeGradient({1, 1, 1, 1}, format, scale);
    g.tensor = Make(shape, format, values);
    return g;
  }
};

struct NormCase {
  Shape x;
  int rows;
  bool addend, relu, in_place;
  float bad = 0;  // one of the values of x
};
// Where there are three channels: y on both sides of the largest number that rounds to zero.
BatchNormSpec MakeNorm(const Place& place, const NormCase& c, const NumberFormat& format) {
  Lab& lab = place.lab;
  const auto k = static_cast<std::size_t>(c.x.c);
  Values x = Normal(Size(c.x), 1.5, 1), gamma = Normal(k, 1, 2), beta = Normal(k, 1, 3);
  if (c.bad != 0) x[k / 2] = c.bad;
  gamma[0] = 3e-8f, gamma[1] = 5e-41f, gamma[2] = -2e-8f;
  beta[0] = 1e-8f, beta[1] = 0, beta[2] = 0x1p-25f;
  BatchNormSpec spec;
  spec.x = place.Make(c.x, format, x);
  spec.gamma = lab.Vector(gamma), spec.beta = lab.Vector(beta);
  spec.running_mean = lab.Vector(Normal(k, 1, 5)), spec.running_var = lab.Vector(Values(k, 0.5f));
  if (c.addend) spec.addend = place.Make(c.x, format, Normal(Size(c.x), 1, 6));
  spec.relu = c.relu, spec.out = place.Make(c.x, format), spec.y_format = format;
  spec.y_stats = lab.Share<TensorStats>();
  if (c.addend) spec.sum_stats = lab.Share<TensorStats>();
  spec.dy = place.MakeGradient(c.x, format, 16, Normal(Size(c.x), 1, 7));
  spec.dx = place.MakeGradient(c.x, format, 1, {});
  if (c.in_place) spec.dx.tensor.data = spec.dy.tensor.data;
  spec.dgamma = lab.Vector(Values(k)), spec.dbeta = lab.Vector(Values(k));
  return spec;
}
// Two steps that are not counted.
Findings TrainNorm(Lab& lab, std::size_t off, const NormCase& c, const NumberFormat& format) {
  Findings findings;
  const BatchNormSpec spec = MakeNorm({lab, off}, c, format);
  const Values dy = lab.Get(spec.dy.tensor);
  const auto op = lab->Make(spec);
  for (const int step : {0, 1}) {
    lab.Set(spec.dy.tensor, dy);
    Pass pass = PassOf(c.rows, false);
    pass.accumulate = step == 1;
    op->Forward(pass);
    op->Backward(pass);
    findings.Add("out", lab, spec.out);
    findings.Add("dx", lab, spec.dx);
    findings.Add("dgamma", lab, spec.dgamma);
    findings.Add("dbeta", lab, spec.dbeta);
    findings.Add("running mean", lab, spec.running_mean);
    findings.Add("y", lab.Fetched(spec.y_stats));
    if (c.addend) findings.Add("sum", lab.Fetched(spec.sum_stats));
  }
  return findings;
}

std::vector<NormCase> NormCases() {
  std::vector<NormCase> cases;
  for (const Shape& shape : {Shape{19, 8, 8, 64}, Shape{7, 5, 5, 8}, Shape{5, 9, 3, 16},
                             Shape{3, 4, 4, 24}, Shape{2, 3, 3, 512}})
    for (const int less : {0, 1})
      for (const int what : {0, 1, 2, 3, 4, 5})
        cases.push_back({shape, static_cast<int>(shape.n) - less, what >= 4, what % 2 == 1,
                         what == 2 || what == 3});
  cases.push_back({{7, 5, 5, 8}, 7, false, true, true, std::nanf("")});
  cases.push_back({{7, 5, 5, 8}, 7, true, true, false, std::numeric_limits<float>::infinity()});
  return cases;
}

struct SumCase {
  Shape shape;
  std::size_t branches;
  float bad = 0;
};
Findings SumOf(Lab& lab, std::size_t off, const SumCase& c, const NumberFormat& format) {
  const Place place{lab, off};
  BranchSumSpec spec;
  for (std::size_t k = 0; k < c.branches; ++k) {
    Values values = Normal(Size(c.shape), k == 0 ? 1 : 1e-5, 10 + k);
    if (c.bad != 0) values[3 + k] = c.bad;
    spec.branches.push_back(place.MakeGradient(c.shape, format, k == 0 ? 4.0f : 512.0f, values));
    spec.branches.back().moments = nullptr, spec.branches.back().stats = nullptr;
  }
  spec.sum = place.MakeGradient(c.shape, format, 1, {});
  const auto op = lab->Make(spec);
  op->Backward(PassOf(static_cast<int>(c.shape.n), false));
  Findings findings;
  findings.Add("sum", lab, spec.sum);
  return findings;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("plain values: a batch norm's bits are those of its general kernels") {
    for (const NumberFormat& format : {kFp16, kBf16})
      for (const NormCase& c : NormCases()) {
        CAPTURE(FormatName(format));
        CAPTURE(ToString(c.x));
        CAPTURE(c.relu);
        Lab lab(MakeBackendUnderTest());
        CheckSame(TrainNorm(lab, 8, c, format), TrainNorm(lab, 0, c, format));
      }
  }

  TEST_CASE("plain values: a mask that y tells is the one that the output tells") {
    for (const NumberFormat& format : {kFp16, kBf16})
      for (const int images : {19, 6}) {
        Lab lab(MakeBackendUnderTest());
        const NormCase apart{{images, 8, 8, 64}, images, false, true, false};
        NormCase in_place = apart;
        in_place.in_place = true;
        CheckSame(TrainNorm(lab, 0, apart, format), TrainNorm(lab, 0, in_place, format));
      }
  }

  TEST_CASE("plain values: the sum of two branches has the bits of the general kernel's") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const NumberFormat& format : {kFp16, kBf16})
      for (const SumCase& c :
           {SumCase{{19, 8, 8, 64}, 2}, SumCase{{1, 1, 1, 8}, 2}, SumCase{{3, 5, 7, 8}, 2},
            SumCase{{3, 5, 7, 8}, 3}, SumCase{{3, 3, 3, 3}, 2}, SumCase{{3, 5, 7, 8}, 2, inf},
            SumCase{{3, 5, 7, 8}, 2, std::nanf("")}}) {
        CAPTURE(FormatName(format));
        CAPTURE(ToString(c.shape));
        Lab lab(MakeBackendUnderTest());
        CheckSame(SumOf(lab, 8, c, format), SumOf(lab, 0, c, format));
      }
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("plain values: which kernels a step takes") {
    const auto kernels = [](std::size_t off, bool count, const NormCase& c) {
      auto stream = std::make_unique<cuda::HostStream>();
      cuda::HostStream& names = *stream;
      Lab lab(cuda::MakeBackendOn(std::move(stream), {"test", "none"}, {}));
      const BatchNormSpec spec = MakeNorm({lab, off}, c, kFp16);
      const auto op = lab->Make(spec);
      names.KeepNames();
      op->Forward(PassOf(c.rows, count));
      op->Backward(PassOf(c.rows, count));
      std::string all;
      for (const std::string& name : names.TakeNames())
        all += name.substr(0, name.find_first_of('<')) + " ";
      return all;
    };
    const NormCase plain{{2, 8, 8, 64}, 2, false, true, true},
        odd{{2, 8, 8, 17}, 2, false, true, true};
    CHECK(kernels(0, false, plain) ==
          "ForEachKernel Vec8MomentsKernel NormalizePlainKernel Vec8GradientsKernel "
          "PlainValuesKernel ");
    const std::string general =
        "ForEachKernel ChannelMomentsKernel NormalizeKernel GradientSumsKernel "
        "RoundValuesKernel ";
    CHECK(kernels(8, false, plain) == general);
    CHECK(kernels(0, false, odd) == general);
    // Counts are the general kernels'.
    CHECK(kernels(0, true, plain) ==
          "ForEachKernel Vec8MomentsKernel NormalizeKernel Vec8GradientsKernel "
          "RoundValuesKernel ");
  }

  TEST_CASE("plain values: the largest number that rounds to zero") {
    for (const Storage storage : {Storage::kF16, Storage::kBF16}) {
      const float at = cuda::LargestZero(storage);
      const float above = std::nextafter(at, 1.0f);
      const bool half = storage == Storage::kF16;
      CHECK((half ? EncodeFp16(at) : EncodeBf16(at)) == 0);
      CHECK((half ? EncodeFp16(above) : EncodeBf16(above)) == 1);
    }
  }
#endif
}

}  // namespace ada::backend::test
