// A backend that computes with symbols (symbols.h) instead of numbers: which tensors each op reads
// and writes, which scale and which moments each gradient carries. Records the specs it was given.
#pragma once
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/backend.h"
#include "graph/fake_losses.h"
#include "graph/fake_ops.h"
#include "graph/fake_recomputed.h"
#include "graph/formulas.h"

namespace ada::graph::test {

// What a pooling notes of its x, in whole numbers of two bytes, one a value of its output.
inline Tensor PositionsOf(const std::uint16_t* positions, Shape pooled, std::int64_t images) {
  REQUIRE(positions);
  Tensor tensor;
  tensor.shape = pooled, tensor.shape.n = images;
  tensor.storage = Storage::kF16;
  tensor.data = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(positions));
  return tensor;
}
inline Symbol PositionsSymbol(Symbol x) { return Hash("positions", {x}); }

class FakeBackend : public backend::Backend {
 public:
  // Tells which fusions and recomputations this backend declines.
  std::function<bool(const backend::BatchNormSpec&)> declines = [](const auto&) { return false; };
  std::function<bool(const backend::MatmulSpec&)> declines_consumer = [](const auto&) {
    return false;
  };
  std::int64_t most = std::numeric_limits<std::int64_t>::max();  // values of a tensor
  bool tables = true;                                            // rounds_by_tables
  std::vector<backend::OpSpec> specs;  // all of which ops were made; below by kind
  std::vector<backend::Conv2dSpec> convolutions;
  std::vector<backend::ConvTranspose2dSpec> transposed;
  std::vector<backend::LinearSpec> linears;
  std::vector<backend::BatchNormSpec> batch_norms;
  std::vector<backend::ReluSpec> relus;
  std::vector<backend::MaxPoolSpec> max_pools;
  std::vector<backend::MaxUnpoolSpec> max_unpools;
  std::vector<backend::AvgPoolSpec> avg_pools;
  std::vector<backend::DropoutSpec> dropouts;
  std::vector<backend::ScaleSpec> casts;
  std::vector<backend::RoundedLayerSpec> activations;
  std::vector<backend::ConcatSpec> concats;
  std::vector<backend::AddSpec> additions;
  std::vector<backend::BranchSumSpec> branch_sums;
  std::vector<backend::InputSpec> inputs;
  std::vector<backend::LossSpec> losses;
  std::vector<Pass> refreshes;
  std::vector<std::size_t> allocations;

  std::string Describe() const override { return "fake"; }
  std::string InstructionSet() const override { return "none"; }
  std::byte* Allocate(std::size_t bytes) override {
    allocations.push_back(bytes);
    memory_.emplace_back(bytes);
    return memory_.back().data();
  }
  // Beside `allocations`: what the host reads.
  backend::SharedMemory AllocateShared(std::size_t bytes) override {
    memory_.emplace_back(bytes);
    return {memory_.back().data(), memory_.back().data(), bytes};
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
  void Read(const Tensor&, std::int64_t, float*) override { FAIL("symbols are no numbers"); }
  std::int64_t most_values() const override { return most; }
  bool rounds_by_tables() const override { return tables; }
  int BlockImages(const Shape&) const override { return 3; }

  std::unique_ptr<backend::InputOp> MakeInput(const backend::InputSpec& s) override;
  std::unique_ptr<Op> Make(const backend::OpSpec& spec) override;
  std::unique_ptr<Op> OpOf(const backend::Conv2dSpec& s) {
    if (s.recomputed && declines_consumer(s)) return nullptr;
    convolutions.push_back(s);
    return Product(s);
  }
  std::unique_ptr<Op> OpOf(const backend::ConvTranspose2dSpec& s) {
    if (s.recomputed && declines_consumer(s)) return nullptr;
    transposed.push_back(s);
    return Product(s);
  }
  std::unique_ptr<Op> OpOf(const backend::LinearSpec& s) {
    if (s.recomputed && declines_consumer(s)) return nullptr;
    linears.push_back(s);
    return Product(s);
  }
  std::unique_ptr<Op> OpOf(const backend::BatchNormSpec& s);
  template <class Function>
  std::unique_ptr<Op> OpOf(const backend::ActivationSpec<Function>& s) {
    if (backend::kPassesDy<Function>) REQUIRE_FALSE(s.dx.stats);
    return Activation(s);
  }
  std::unique_ptr<Op> OpOf(const backend::ConcatSpec& s) { return Join(s); }
  std::unique_ptr<Op> OpOf(const backend::ConcatBoxesSpec& s) { return Join(s); }
  std::unique_ptr<Op> OpOf(const backend::MultiplySpec& s);
  std::unique_ptr<Op> OpOf(const backend::ChannelScaleSpec& s);
  std::unique_ptr<Op> OpOf(const backend::PreluSpec& s);
  std::unique_ptr<Op> OpOf(const backend::LayerNormSpec& s) { return GroupedNorm(s); }
  std::unique_ptr<Op> OpOf(const backend::GroupNormSpec& s) { return GroupedNorm(s); }
  std::unique_ptr<Op> OpOf(const backend::L2NormalizeSpec& s);
  std::unique_ptr<Op> OpOf(const backend::LrnSpec& s);
  std::unique_ptr<Op> OpOf(const backend::MaxUnpoolSpec& s);
  std::unique_ptr<Op> OpOf(const backend::StochasticDepthSpec& s) { return Rounded(s); }
  std::unique_ptr<Op> OpOf(const backend::UpsampleSpec& s) { return Linear(s); }
  std::unique_ptr<Op> OpOf(const backend::BilinearSpec& s) { return Rounded(s); }
  std::unique_ptr<Op> OpOf(const backend::PixelShuffleSpec& s) {
    RequireExact(s);
    return Linear(s);
  }
  std::unique_ptr<Op> OpOf(const backend::ReluSpec& s) {
    relus.push_back(s);
    RequireExact(s);
    return MakeOp([s] { Write(s.y, Hash("relu", {test::Read(s.x)})); },
                  [s] {
                    const Symbol dy = ReadGradient(s.dy);
                    WriteGradient(s.dx, Hash("mask", {test::Read(s.y), dy}), *s.dy.scale);
                  });
  }
  std::unique_ptr<Op> OpOf(const backend::MaxPoolSpec& s) {
    max_pools.push_back(s);
    RequireExact(s);
    const std::string f = Formula(s);
    const auto forward = [s, f] {
      const Symbol x = test::Read(s.x);
      Write(s.y, Hash(f, {x}));
      if (s.positions) Write(PositionsOf(s.positions, s.y.shape, s.y.shape.n), PositionsSymbol(x));
    };
    return MakeOp(forward, [s, f] {
      const Symbol dy = ReadGradient(s.dy);
      WriteGradient(s.dx, Hash(f + " dx", {test::Read(s.x), test::Read(s.y), dy}), *s.dy.scale);
    });
  }
  std::unique_ptr<Op> OpOf(const backend::AvgPoolSpec& s) {
    avg_pools.push_back(s);
    return Rounded(s);
  }
  std::unique_ptr<Op> OpOf(const backend::DropoutSpec& s) {
    dropouts.push_back(s);
    return Rounded(s);
  }
  std::unique_ptr<Op> OpOf(const backend::ShortcutSpec& s) {
    RequireExact(s);
    return Linear(s);
  }
  std::unique_ptr<Op> OpOf(const backend::SliceSpec& s) {
    RequireExact(s);
    return Linear(s);
  }
  std::unique_ptr<Op> OpOf(const backend::AffineSpec& s);
  std::unique_ptr<Op> OpOf(const backend::FlattenSpec& s) {
    RequireExact(s);
    return Linear(s);
  }
  std::unique_ptr<Op> OpOf(const backend::ScaleSpec& s);
  std::unique_ptr<Op> OpOf(const backend::AddSpec& s) {
    additions.push_back(s);
    return MakeOp(
        [s] {
          std::vector<Symbol> x;
          for (const Tensor& tensor : s.x) x.push_back(test::Read(tensor));
          Write(s.y, AddSymbol(x));
          Count(s.y_stats, s.y, AddSymbol(x));
        },
        [] { FAIL("the backward of add is an alias"); });
  }
  std::unique_ptr<Op> OpOf(const backend::BranchSumSpec& s);
  // Layers of sequences, which are planned alone here.
  template <class Spec>
  std::unique_ptr<Op> OpOf(const Spec&) {
    return MakeOp([] {}, [] {});
  }
  std::unique_ptr<backend::LossOp> MakeLoss(const backend::LossSpec& s) override;
  std::unique_ptr<backend::UpdateOp> MakeUpdate(const backend::UpdateRule&,
                                                std::vector<backend::UpdateSlot>,
                                                std::vector<backend::WatchedRounding>) override {
    return nullptr;
  }
  std::unique_ptr<backend::AverageOp> MakeAverage(std::vector<backend::AverageSlot>) override {
    return nullptr;
  }

  Symbol logits = 0;  // of the last loss forward: of all outputs

 private:
  std::unique_ptr<Op> MakeOp(Call forward, Call backward) {
    auto op = std::make_unique<CallOp<Op>>();
    op->forward = std::move(forward);
    op->backward = std::move(backward);
    op->refreshes = &refreshes;
    return op;
  }
  template <typename Spec>
  std::unique_ptr<Op> Linear(const Spec& s) {  // backward reads dy alone
    const std::string f = Formula(s);
    return MakeOp([s, f] { Write(s.y, Hash(f, {test::Read(s.x)})); },
                  [s, f] {
                    const Symbol dy = ReadGradient(s.dy);
                    WriteGradient(s.dx, Hash(f + " dx", {dy}), *s.dy.scale);
                  });
  }
  template <typename Spec>
  std::unique_ptr<Op> Rounded(const Spec& s) {
    auto op = Linear(s);
    auto& calls = static_cast<CallOp<Op>&>(*op);
    calls.forward = [s, forward = calls.forward] {
      forward();
      Count(s.y_stats, s.y, test::Read(s.y));
    };
    return op;
  }
  template <typename Spec>
  std::unique_ptr<Op> Activation(const Spec& s) {
    activations.push_back(s);
    return ReadsInput(s);
  }
  template <typename Spec>
  std::unique_ptr<Op> ReadsInput(const Spec& s) {  // backward reads x and dy
    auto op = Rounded(s);
    static_cast<CallOp<Op>&>(*op).backward = [s, f = Formula(s)] {
      const Symbol dy = ReadGradient(s.dy);
      WriteGradient(s.dx, Hash(f + " dx", {test::Read(s.x), dy}), *s.dy.scale);
    };
    return op;
  }
  template <typename Spec>
  std::unique_ptr<Op> Product(const Spec& s);
  template <typename Spec>
  std::unique_ptr<Op> GroupedNorm(const Spec& s);
  template <typename Spec>
  std::unique_ptr<Op> Join(const Spec& s);

  std::deque<std::vector<std::byte>> memory_;
};

}  // namespace ada::graph::test
