// What the fake backend's ops are made of: gradients as symbols, and ops that call functions.
#pragma once
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "graph/symbols.h"

namespace ada::graph::test {

using backend::Gradient;
using backend::Op;
using backend::Pass;

inline void Count(TensorStats* stats, const Tensor& tensor, Symbol symbol) {
  if (!stats) return;
  stats->numel = tensor.shape.numel();
  stats->mean = static_cast<double>(symbol);
}

inline void WriteGradient(const Gradient& gradient, Symbol symbol, float scale) {
  if (!gradient) return;
  Write(gradient.tensor, symbol);
  *gradient.scale = scale;
  Count(gradient.stats, gradient.tensor, symbol);
  if (gradient.moments) gradient.moments->mean = static_cast<double>(symbol);
}

// The symbol of a gradient; moments, where it has them, must be those of the same values.
inline Symbol ReadGradient(const Gradient& gradient) {
  const Symbol symbol = Read(gradient.tensor);
  if (gradient.moments) REQUIRE(gradient.moments->mean == static_cast<double>(symbol));
  return symbol;
}

// An op that rounds nothing: its two sides are of one format and one storage.
inline void RequireSame(const Tensor& a, const Tensor& b) {
  REQUIRE(a.format == b.format);
  REQUIRE(a.storage == b.storage);
}
template <typename Spec>
void RequireExact(const Spec& s) {
  RequireSame(s.x, s.y);
  if (s.dx && !s.dx.stats) RequireSame(s.dx.tensor, s.dy.tensor);
}

using Call = std::function<void()>;

template <typename Base>
struct CallOp : Base {
  Call forward, backward;
  std::vector<Pass>* refreshes = nullptr;
  void Forward(const Pass&) override { forward(); }
  void Backward(const Pass&) override { backward(); }
  void RefreshWeights(const Pass& pass) override {
    if (refreshes) refreshes->push_back(pass);
  }
};

struct FakeInput : CallOp<backend::InputOp> {
  void SetImages(const float*, int) override {}
};
struct FakeLoss : CallOp<backend::LossOp> {
  void SetTargets(const backend::Targets&, int) override {}
  backend::LossResult Result() override { return {}; }
};

// alpha of a rule in this backend: its constant, whatever the method.
inline float AlphaOf(const scaling::LayerRule& rule) {
  return rule.method == scaling::LayerMethod::kPass ? 1 : static_cast<float>(rule.fixed_scale);
}

// What a layer with a rule does about scales: alpha into its decision, dx with the scale it then
// carries. `asks`: who writes dy measures it for the rule.
template <typename Spec>
void WriteScaledDx(const Spec& s, Symbol symbol, bool asks = true) {
  REQUIRE(static_cast<bool>(s.dx) == (s.scaler != nullptr));
  if (!s.dx) return;
  REQUIRE(s.dx.scale != s.dy.scale);
  if (asks && scaling::MayNeedMoments(s.scaler->rule)) REQUIRE(s.dy.moments);
  const float alpha = AlphaOf(s.scaler->rule);
  s.scaler->decision.alpha = alpha;
  WriteGradient(s.dx, symbol, *s.dy.scale * alpha);
}

}  // namespace ada::graph::test
