// Layers of decoders beside PyTorch's, in fp32: values, gradients of inputs and of parameters.
#include <doctest/doctest.h>

#include "backend/recorded_vision.h"

namespace ada::backend::test {
namespace {

constexpr double kBound = 1e-6;
constexpr float kScale = 4;

// The op of a spec on the case's tensors, one step, checked.
class RecordedLayer {
 public:
  explicit RecordedLayer(const VisionCase& c) : c_(c) {}

  template <class Spec>
  void Check(Spec spec) {
    spec.x = bench_.Make(c_.ShapeOf("x"), kFp32, c_.Nhwc("x"));
    spec.y = bench_.Make(c_.ShapeOf("y"), kFp32);
    Values dy = c_.Nhwc("dy");
    for (float& v : dy) v *= kScale;
    spec.dy = bench_.MakeGradient(c_.ShapeOf("dy"), kFp32, dy, kScale);
    spec.dx = bench_.MakeGradient(c_.ShapeOf("x"), kFp32);
    const auto op = bench_->Make(spec);
    const Pass pass = MakePass(static_cast<int>(spec.x.shape.n));
    op->RefreshWeights(pass);
    op->Forward(pass);
    op->Backward(pass);
    CheckNear("y", Bench::Get(spec.y), c_.Nhwc("y"), kBound);
    Values dx = Bench::Get(spec.dx.tensor);
    for (float& v : dx) v /= *spec.dx.scale;
    CheckNear("dx", dx, c_.Nhwc("dx"), kBound);
    if constexpr (requires { spec.dw; })
      CheckNear("dw", Bench::Get(spec.dw), c_.Read("dw"), kBound);
    if constexpr (requires { spec.db; })
      if (spec.db) CheckNear("db", Bench::Get(spec.db), c_.Read("db"), kBound);
  }

  void Transposed() {
    ConvTranspose2dSpec spec;
    const std::vector<std::int64_t> w = c_.Dims("w");
    spec.w = bench_.Make({w[0], w[2], w[3], w[1]}, kFp32, c_.Read("w"));
    spec.dw = bench_.Make(spec.w.shape, kFp32);
    if (c_.Has("b")) spec.b = bench_.Vector(c_.Read("b")), spec.db = bench_.Vector(c_.Read("b"));
    spec.stride = Pair("stride"), spec.padding = Pair("padding");
    spec.dilation = Pair("dilation"), spec.groups = Whole("groups");
    scaler_.rule.method = scaling::LayerMethod::kFixed, scaler_.rule.fixed_scale = 2;
    spec.scaler = &scaler_;
    Check(spec);
  }
  void Bilinear() {
    BilinearSpec spec;
    spec.align_corners = c_.Number("align_corners") != 0;
    Check(spec);
  }
  void PixelShuffle() {
    PixelShuffleSpec spec;
    spec.scale = Whole("scale");
    Check(spec);
  }
  void Prelu() {
    PreluSpec spec;
    spec.w = bench_.Vector(c_.Read("w")), spec.dw = bench_.Vector(c_.Read("w"));
    Check(spec);
  }
  void Function() {
    ActivationSpec<Elu> elu;
    ActivationSpec<Softplus> softplus;
    if (c_.row.at("kind") == "elu") {
      elu.function.alpha = static_cast<float>(c_.Number("alpha"));
      return Check(elu);
    }
    softplus.function = {static_cast<float>(c_.Number("beta")),
                         static_cast<float>(c_.Number("threshold"))};
    Check(softplus);
  }

 private:
  int Whole(const std::string& column) const { return static_cast<int>(c_.Number(column)); }
  std::array<int, 2> Pair(const std::string& column) const {
    return {Whole(column + "_h"), Whole(column + "_w")};
  }

  const VisionCase& c_;
  Bench bench_;
  scaling::LayerScaler scaler_;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("layers of decoders: values and gradients are PyTorch's") {
    std::map<std::string, int> found;
    ForRecorded("layers", "layers", [&](const VisionCase& c) {
      RecordedLayer layer(c);
      const std::string kind = c.row.at("kind");
      ++found[kind];
      if (kind == "conv_transpose2d") return layer.Transposed();
      if (kind == "bilinear") return layer.Bilinear();
      if (kind == "pixel_shuffle") return layer.PixelShuffle();
      if (kind == "prelu") return layer.Prelu();
      layer.Function();
    });
    CHECK(found.size() == 6);
  }
}

}  // namespace ada::backend::test
