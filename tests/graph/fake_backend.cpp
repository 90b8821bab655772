// See fake_backend.h. Functions of all kinds of layers are instantiated here alone.
#include "graph/fake_backend.h"

#include "graph/fake_layers.h"
#include "graph/fake_vision.h"

namespace ada::graph::test {

std::unique_ptr<backend::InputOp> FakeBackend::MakeInput(const backend::InputSpec& s) {
  inputs.push_back(s);
  auto op = std::make_unique<FakeInput>();
  op->forward = [s] { Write(s.y, Hash("input", {})); };
  return op;
}

std::unique_ptr<Op> FakeBackend::Make(const backend::OpSpec& spec) {
  auto op = std::visit([this](const auto& s) { return OpOf(s); }, spec);
  if (op) specs.push_back(spec);
  return op;
}

std::unique_ptr<backend::LossOp> FakeBackend::MakeLoss(const backend::LossSpec& s) {
  losses.push_back(s);
  auto op = std::make_unique<FakeLoss>();
  const auto read = [ends = EndsOf(s)] {
    std::vector<Symbol> outputs;
    for (const LossEnd& end : ends) outputs.push_back(test::Read(end.output));
    return outputs;
  };
  op->forward = [this, read] { logits = LossSymbol(read()); };
  op->backward = [read, ends = EndsOf(s)] {
    const std::vector<Symbol> outputs = read();
    for (std::size_t i = 0; i < ends.size(); ++i)
      WriteGradient(ends[i].gradient, LossGradient(outputs, i), 8);
  };
  return op;
}

template <typename Spec>
std::unique_ptr<Op> FakeBackend::Product(const Spec& s) {
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    const Symbol y = Hash(f, {ReadX(s, true), test::Read(s.w), s.b ? test::Read(s.b) : 0});
    Write(s.y, y);
    Count(s.y_stats, s.y, y);
    Count(s.w_stats, s.w, test::Read(s.w));
  };
  const auto backward = [s, f] {
    const Symbol x = ReadX(s, false), w = test::Read(s.w), dy = ReadGradient(s.dy);
    Write(s.dw, Hash(f + " dw", {x, dy}));
    Count(s.dw_stats, s.dw, Hash(f + " dw", {x, dy}));
    if (s.db) Write(s.db, Hash(f + " db", {dy}));
    WriteScaledDx(s, Hash(f + " dx", {w, dy}));
    TakeSums(s);
  };
  return MakeOp(forward, backward);
}

std::unique_ptr<Op> FakeBackend::OpOf(const backend::BatchNormSpec& s) {
  if ((s.addend || s.relu || s.recomputed) && declines(s)) return nullptr;
  batch_norms.push_back(s);
  const std::string f = Formula(s);
  const auto forward = [s, f] {
    Symbol out = Hash(f, {test::Read(s.x), test::Read(s.gamma), test::Read(s.beta)});
    if (s.recomputed) return PassToConsumer(s.recomputed, out);
    Count(s.y_stats, s.out, out);
    if (s.addend) {
      out = AddSymbol({out, test::Read(s.addend)});
      Count(s.sum_stats, s.out, out);
    }
    if (s.relu) out = Hash("relu", {out});
    Write(s.out, out);
  };
  const auto backward = [s, f] {
    const Symbol x = test::Read(s.x), gamma = test::Read(s.gamma);
    Symbol dy = s.recomputed ? ReadMasked(s) : ReadGradient(s.dy);
    if (s.relu && !s.recomputed) {
      dy = Hash("mask", {test::Read(s.out), dy});
      Write(s.dy.tensor, dy);
    }
    Write(s.dgamma, Hash(f + " dgamma", {x, dy}));
    Write(s.dbeta, Hash(f + " dbeta", {dy}));
    const Symbol dx = Hash(f + " dx", {x, gamma, dy});
    s.scaler ? WriteScaledDx(s, dx, /*asks=*/false) : WriteGradient(s.dx, dx, *s.dy.scale);
  };
  return MakeOp(forward, backward);
}

std::unique_ptr<Op> FakeBackend::OpOf(const backend::BranchSumSpec& s) {
  branch_sums.push_back(s);
  return MakeOp([] { FAIL("a branch sum has no forward"); },
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
