// Losses in the compare backend: nothing is found where two instruction sets agree, and a wrong
// target, a wrong weight, a wrong number of negatives or a wrong location is.
#include <doctest/doctest.h>

#include <functional>
#include <variant>

#include "backend/compare/tolerances.h"
#include "backend/isa_setting.h"
#include "backend/passing_backend.h"
#include "backend/values.h"

namespace ada::backend::test {
namespace {

using compare::Difference;
using ChangeLoss = std::function<void(LossSpec&)>;

// Makes losses of changed specs.
class OtherLosses : public PassingBackend {
 public:
  explicit OtherLosses(ChangeLoss change)
      : PassingBackend(cpu::MakeCpuBackend(1)), change_(std::move(change)) {}
  std::unique_ptr<LossOp> MakeLoss(const LossSpec& spec) override {
    LossSpec changed = spec;
    change_(changed);
    return PassingBackend::MakeLoss(changed);
  }

 private:
  ChangeLoss change_;
};

struct Memory {
  Tensor Make(const Shape& shape, const NumberFormat& format, std::uint64_t seed) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = backend.Allocate(t.bytes());
    if (seed == 0) return t;
    const Values values = Normal(static_cast<std::size_t>(shape.numel()), 2, seed);
    std::vector<std::uint16_t> codes;
    for (const float v : values) codes.push_back(EncodeFp16(v));
    const void* from = t.storage == Storage::kF32 ? static_cast<const void*>(values.data())
                                                  : static_cast<const void*>(codes.data());
    backend.Upload(t.data, from, t.bytes());
    return t;
  }
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format) {
    Gradient g;
    g.tensor = Make(shape, format, 0);
    g.scale = reinterpret_cast<float*>(backend.AllocateShared(sizeof(float)).backend);
    g.stats = reinterpret_cast<TensorStats*>(backend.AllocateShared(sizeof(TensorStats)).backend);
    return g;
  }
  Backend& backend;
};

enum class LossKind { kImages, kPixels, kBoxes };
std::vector<Difference> FindIn(const NumberFormat& format, LossKind kind,
                               const ChangeLoss& change) {
  const bool boxes = kind == LossKind::kBoxes;
  std::vector<Difference> found;
  CompareOptions options;
  options.report = [&](const Difference& difference) { found.push_back(difference); };
  std::unique_ptr<Backend> first;
  {
    const IsaSetting setting("sse2");
    first = cpu::MakeCpuBackend(1);
  }
  const auto both =
      MakeCompareBackend(std::move(first), std::make_unique<OtherLosses>(change), options);
  Memory memory{*both};
  LossSpec spec;
  const Shape scores = boxes ? Shape{2, 1, 200, 5} : Shape{2, 10, 12, 5}, four{2, 1, 200, 4};
  const Shape images{2, 1, 1, 5};
  if (kind == LossKind::kImages) {
    ClassLossSpec loss;
    loss.logits = memory.Make(images, format, 2);
    loss.dlogits = memory.MakeGradient(images, format);
    spec = loss;
  } else if (boxes) {
    MultiboxLossSpec multibox;
    multibox.locations = memory.Make(four, format, 1);
    multibox.scores = memory.Make(scores, format, 2);
    multibox.dlocations = memory.MakeGradient(four, format);
    multibox.dscores = memory.MakeGradient(scores, format);
    spec = multibox;
  } else {
    PixelLossSpec pixels;
    pixels.logits = memory.Make(scores, format, 2);
    pixels.class_weights = {1, 0.5f, 2, 3, 0.25f};
    pixels.dlogits = memory.MakeGradient(scores, format);
    spec = pixels;
  }
  const auto op = both->MakeLoss(spec);
  std::vector<std::int32_t> labels;
  const std::int64_t rows = scores.n * scores.h * scores.w;
  for (std::int64_t i = 0; i < rows; ++i)
    labels.push_back(static_cast<std::int32_t>(kind == LossKind::kImages ? i % 5
                                               : boxes ? (i % 9 == 4 ? 1 + i % 4 : 0)
                                                       : i % 6 - 1));
  const Values targets = Normal(static_cast<std::size_t>(four.numel()), 1, 3);
  Targets all{labels.data()};
  all.locations = targets.data();
  Pass pass;
  for (const int count : {2, 1}) {
    op->SetTargets(all, count);
    pass.rows = count, pass.loss_terms = 37, pass.loss_scale = 128, pass.count = count == 2;
    op->Forward(pass);
    op->Backward(pass);
    op->Result();
  }
  return found;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("compare: losses agree between instruction sets") {
    for (const NumberFormat& format : {kFp32, kFp16})
      for (const LossKind kind : {LossKind::kImages, LossKind::kPixels, LossKind::kBoxes})
        CHECK(FindIn(format, kind, [](LossSpec&) {}).empty());
  }

  TEST_CASE("compare: a wrong loss is found, and in which gradient") {
    const auto first = [](LossKind kind, const ChangeLoss& change) {
      const std::vector<Difference> found = FindIn(kFp32, kind, change);
      REQUIRE(!found.empty());
      return found[0].phase + " " + found[0].tensor;
    };
    CHECK(first(LossKind::kImages, [](LossSpec& s) {
            std::get<ClassLossSpec>(s).label_smoothing = 1e-4f;
          }) == "backward dx");
    CHECK(first(LossKind::kPixels, [](LossSpec& s) {
            std::get<PixelLossSpec>(s).class_weights[3] = 3.001f;
          }) == "backward dx");
    CHECK(first(LossKind::kBoxes, [](LossSpec& s) {
            std::get<MultiboxLossSpec>(s).negatives = 2;
          }) == "backward dx2");
    CHECK(first(LossKind::kBoxes, [](LossSpec& s) {
            std::swap(std::get<MultiboxLossSpec>(s).dlocations.tensor.data,
                      std::get<MultiboxLossSpec>(s).locations.data);
          }) == "backward dx");
  }
}

}  // namespace ada::backend::test
