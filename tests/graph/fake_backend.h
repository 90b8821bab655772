// A backend that computes with symbols (symbols.h) instead of numbers: which tensors each op reads
// and writes, which scale and which moments each gradient carries. Records the specs it was given.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
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

using Call = std::function<void()>;

template <typename Base>
struct CallOp : Base {
  Call forward, backward;
  void Forward(const Pass&) override { forward(); }
  void Backward(const Pass&) override { backward(); }
};

struct FakeInput : CallOp<backend::InputOp> {
  void SetImages(const float*, int) override {}
};
struct FakeLoss : CallOp<backend::LossOp> {
  void SetLabels(const std::int32_t*, int) override {}
  backend::LossResult Result() override { return {}; }
};

inline std::string Formula(const backend::Conv2dSpec& s) {
  return Numbers("conv2d",
                 {1.0 * s.stride[0], 1.0 * s.stride[1], 1.0 * s.padding[0], 1.0 * s.padding[1],
                  1.0 * s.dilation[0], 1.0 * s.dilation[1], 1.0 * s.groups});
}
inline std::string Formula(const backend::LinearSpec&) { return "linear"; }
template <typename PoolSpec>
std::string PoolFormula(const char* name, const PoolSpec& s) {
  return Numbers(name, {1.0 * s.kernel[0], 1.0 * s.kernel[1], 1.0 * s.stride[0], 1.0 * s.stride[1],
                        1.0 * s.padding[0], 1.0 * s.padding[1]});
}
inline std::string Formula(const backend::MaxPoolSpec& s) { return PoolFormula("max_pool", s); }
inline std::string Formula(const backend::AvgPoolSpec& s) { return PoolFormula("avg_pool", s); }
inline std::string Formula(const backend::ReluSpec&) { return "relu"; }
inline std::string Formula(const backend::FlattenSpec&) { return "flatten"; }
inline std::string Formula(const backend::ShortcutSpec& s) {
  return Numbers("shortcut", {1.0 * s.stride[0], 1.0 * s.stride[1]});
}
inline std::string Formula(const backend::DropoutSpec& s) {
  return Numbers("dropout", {s.rate}) + std::to_string(s.layer);
}
inline std::string Formula(const backend::BatchNormSpec& s) {
  return Numbers("batch_norm", {s.eps, s.momentum});
}

class FakeBackend : public backend::Backend {
 public:
  std::function<bool(const backend::BatchNormSpec&)> declines = [](const auto&) { return false; };
  std::vector<backend::Conv2dSpec> convolutions;
  std::vector<backend::LinearSpec> linears;
  std::vector<backend::BatchNormSpec> batch_norms;
  std::vector<backend::ReluSpec> relus;
  std::vector<backend::MaxPoolSpec> max_pools;
  std::vector<backend::BranchSumSpec> branch_sums;
  std::vector<std::size_t> allocations;

  std::string Describe() const override { return "fake"; }
  std::string InstructionSet() const override { return "none"; }
  std::byte* Allocate(std::size_t bytes) override {
    allocations.push_back(bytes);
    memory_.emplace_back(bytes);
    return memory_.back().data();
  }
  std::size_t allocated_bytes() const override {
    std::size_t sum = 0;
    for (const std::size_t bytes : allocations) sum += bytes;
    return sum;
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Download(void* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Synchronize() override {}
  int BlockImages(const Shape&) const override { return 3; }

  std::unique_ptr<backend::InputOp> MakeInput(const backend::InputSpec& s) override {
    auto op = std::make_unique<FakeInput>();
    op->forward = [s] { Write(s.y, Hash("input", {})); };
    return op;
  }
  std::unique_ptr<Op> MakeConv2d(const backend::Conv2dSpec& s) override {
    convolutions.push_back(s);
    return Product(s);
  }
  std::unique_ptr<Op> MakeLinear(const backend::LinearSpec& s) override {
    linears.push_back(s);
    return Product(s);
  }
  std::unique_ptr<Op> MakeBatchNorm(const backend::BatchNormSpec& s) override;
  std::unique_ptr<Op> MakeRelu(const backend::ReluSpec& s) override {
    relus.push_back(s);
    return Make([s] { Write(s.y, Hash("relu", {Read(s.x)})); },
                [s] {
                  const Symbol dy = ReadGradient(s.dy);
                  WriteGradient(s.dx, Hash("mask", {Read(s.y), dy}), *s.dy.scale);
                });
  }
  std::unique_ptr<Op> MakeMaxPool(const backend::MaxPoolSpec& s) override {
    max_pools.push_back(s);
    const std::string f = Formula(s);
    return Make([s, f] { Write(s.y, Hash(f, {Read(s.x)})); },
                [s, f] {
                  const Symbol dy = ReadGradient(s.dy);
                  WriteGradient(s.dx, Hash(f + " dx", {Read(s.x), Read(s.y), dy}), *s.dy.scale);
                });
  }
  std::unique_ptr<Op> MakeAvgPool(const backend::AvgPoolSpec& s) override { return Rounded(s); }
  std::unique_ptr<Op> MakeDropout(const backend::DropoutSpec& s) override { return Rounded(s); }
  std::unique_ptr<Op> MakeShortcut(const backend::ShortcutSpec& s) override { return Linear(s); }
  std::unique_ptr<Op> MakeFlatten(const backend::FlattenSpec& s) override { return Linear(s); }
  std::unique_ptr<Op> MakeAdd(const backend::AddSpec& s) override {
    return Make(
        [s] {
          std::vector<Symbol> x;
          for (const Tensor& tensor : s.x) x.push_back(Read(tensor));
          Write(s.y, AddSymbol(x));
          Count(s.y_stats, s.y, AddSymbol(x));
        },
        [] { FAIL("the backward of add is an alias"); });
  }
  std::unique_ptr<Op> MakeBranchSum(const backend::BranchSumSpec& s) override;
  std::unique_ptr<backend::LossOp> MakeLoss(const backend::LossSpec& s) override {
    auto op = std::make_unique<FakeLoss>();
    op->forward = [this, s] { logits = Read(s.logits); };
    op->backward = [s] { WriteGradient(s.dlogits, Hash("loss", {Read(s.logits)}), 8); };
    return op;
  }
  std::unique_ptr<backend::UpdateOp> MakeUpdate(const backend::UpdateRule&,
                                                std::vector<backend::UpdateSlot>) override {
    return nullptr;
  }

  Symbol logits = 0;  // of the last loss forward

 private:
  static std::unique_ptr<Op> Make(Call forward, Call backward) {
    auto op = std::make_unique<CallOp<Op>>();
    op->forward = std::move(forward);
    op->backward = std::move(backward);
    return op;
  }
  template <typename Spec>
  static std::unique_ptr<Op> Linear(const Spec& s) {  // backward reads dy alone
    const std::string f = Formula(s);
    return Make([s, f] { Write(s.y, Hash(f, {Read(s.x)})); },
                [s, f] {
                  const Symbol dy = ReadGradient(s.dy);
                  WriteGradient(s.dx, Hash(f + " dx", {dy}), *s.dy.scale);
                });
  }
  template <typename Spec>
  static std::unique_ptr<Op> Rounded(const Spec& s) {
    auto op = Linear(s);
    auto& calls = static_cast<CallOp<Op>&>(*op);
    calls.forward = [s, forward = calls.forward] {
      forward();
      Count(s.y_stats, s.y, Read(s.y));
    };
    return op;
  }
  template <typename Spec>
  static std::unique_ptr<Op> Product(const Spec& s);

  std::deque<std::vector<std::byte>> memory_;
};

// alpha of a rule in this backend: its constant, whatever the method.
inline float AlphaOf(const scaling::LayerRule& rule) {
  return rule.method == scaling::LayerMethod::kPass ? 1 : static_cast<float>(rule.fixed_scale);
}

template <typename Spec>
std::unique_ptr<Op> FakeBackend::Product(const Spec& s) {
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    const Symbol y = Hash(f, {Read(s.x), Read(s.w), s.b ? Read(s.b) : 0});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
    Count(s.w_stats, s.w, Read(s.w));
  };
  const auto backward = [s, f] {
    const Symbol x = Read(s.x), w = Read(s.w), dy = ReadGradient(s.dy);
    Write(s.dw, Hash(f + " dw", {x, dy}));
    Count(s.dw_stats, s.dw, Hash(f + " dw", {x, dy}));
    if (s.db) Write(s.db, Hash(f + " db", {dy}));
    REQUIRE(static_cast<bool>(s.dx) == (s.scaler != nullptr));
    if (!s.dx) return;
    REQUIRE(s.dx.scale != s.dy.scale);
    if (s.scaler->rule.method == scaling::LayerMethod::kApproxRange) REQUIRE(s.dy.moments);
    const float alpha = AlphaOf(s.scaler->rule);
    s.scaler->decision.alpha = alpha;
    WriteGradient(s.dx, Hash(f + " dx", {w, dy}), *s.dy.scale * alpha);
  };
  return Make(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::MakeBatchNorm(const backend::BatchNormSpec& s) {
  if ((s.addend || s.relu) && declines(s)) return nullptr;
  batch_norms.push_back(s);
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    Symbol out = Hash(f, {Read(s.x), Read(s.gamma), Read(s.beta)});
    Count(s.y_stats, s.out, out);
    if (s.addend) {
      out = AddSymbol({out, Read(s.addend)});
      Count(s.sum_stats, s.out, out);
    }
    if (s.relu) out = Hash("relu", {out});
    Write(s.out, out);
  };
  const auto backward = [s, f] {
    const Symbol x = Read(s.x), gamma = Read(s.gamma);
    Symbol dy = ReadGradient(s.dy);
    if (s.relu) {
      dy = Hash("mask", {Read(s.out), dy});
      Write(s.dy.tensor, dy);
    }
    Write(s.dgamma, Hash(f + " dgamma", {x, dy}));
    Write(s.dbeta, Hash(f + " dbeta", {dy}));
    WriteGradient(s.dx, Hash(f + " dx", {x, gamma, dy}), *s.dy.scale);
  };
  return Make(forward, backward);
}

inline std::unique_ptr<Op> FakeBackend::MakeBranchSum(const backend::BranchSumSpec& s) {
  branch_sums.push_back(s);
  return Make([] { FAIL("a branch sum has no forward"); },
              [s] {
                std::vector<Symbol> g;
                float target = 0;
                for (const Gradient& branch : s.branches) {
                  g.push_back(ReadGradient(branch));
                  target = std::max(target, *branch.scale);
                }
                s.decision->scale_out = target;
                WriteGradient(s.sum, Hash("sum", g), target);
              });
}

}  // namespace ada::graph::test
