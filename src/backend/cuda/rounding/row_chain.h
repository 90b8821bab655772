// Roundings that an op leaves to the op after it, which makes one launch of both.
#pragma once
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/row_chain.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

template <class T, class... Others>
inline constexpr bool IsOneOf = (std::is_same_v<T, Others> || ...);

// The backend has one. An op whose output is rounded value by value may leave that in Forward:
// within a Backend::Run, where nothing but the largest magnitude is measured. The next op takes it
// along if it reads that output; else it is launched before that op does anything (ops/pass_ops.h),
// and at the end of the Run. So nobody else ever sees memory in which it is missing.
class RowChain {
 public:
  explicit RowChain(Stream& stream) : stream_(stream) {}
  RowChain(const RowChain&) = delete;

  // A Backend::Run that is no part of another one, while it lives.
  class Run {
   public:
    explicit Run(RowChain& chain) : chain_(chain) { chain_.open_ = true; }
    ~Run() { chain_.open_ = false, chain_.Forget(); }
    Run(const Run&) = delete;

   private:
    RowChain& chain_;
  };

  // What an op rounds to y, of tensors x (none: of sums in scratch memory). Each returns whether
  // the op leaves it here; else what was left before is launched.
  bool Leave(const Pass& pass, const RoundingStats& stats, const Tensor& y, const BiasedSum& value);
  bool Leave(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
             const DroppedOut& value);
  bool Leave(const Pass& pass, const RoundingStats& stats, const std::vector<Tensor>& x,
             const Tensor& y, const SumValue& value);
  // These end what was left, and launch it.
  bool End(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
           const GroupStatistics& by_group, const GroupedNormValue& value);
  template <class Value>
  bool End(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
           const Value& value);

  // Launches what was left.
  void Launch();
  // Calls `body`, and launches what it leaves; nothing where it fails.
  void Around(const std::function<void()>& body);

 private:
  bool Takes(const Pass& pass, const RoundingStats& stats) const;
  // Whether it was left what makes x, by stages before this one, of as many values.
  bool Makes(const Tensor& x, int stage, std::int64_t values) const {
    return stages_ > 0 && out_ == x.data && last_ < stage && values == values_;
  }
  template <class Stage, class Value>
  bool Add(int number, Stage& stage, const Pass& pass, const RoundingStats& stats, const Tensor& y,
           const Value& value);
  // Blocks of `size` values.
  void LaunchStages(std::int64_t size, int blocks);
  void Forget();

  Stream& stream_;
  bool open_ = false;
  RowStages of_;
  int stages_ = 0, last_ = -1;  // how many were left, and the last one's number
  const std::byte* out_ = nullptr;
  std::int64_t values_ = 0;
  std::function<void()> alone_;  // launches the one stage, as its op does without this
};

// Whether Forward of an op with this spec leaves or ends a chain, or launches it first.
template <class Spec>
constexpr bool TakesRowChain() {
  return IsOneOf<Spec, DropoutSpec, AddSpec, LayerNormSpec, GroupNormSpec, ActivationSpec<Gelu>,
                 ActivationSpec<GeluTanh>>;
}

template <class Value>
bool RowChain::End(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
                   const Value& value) {
  const Rounding how = Takes(pass, stats) ? stats.For(pass) : Rounding();
  // A chain of rows ends with a norm alone.
  if (!Makes(x, 1, how.values) || last_ != 0) {
    Launch();
    return false;
  }
  const FlatBlocks flat = FlatBlocksOf(how.values);
  using Biased = RoundingStage<BiasedSum>;
  Biased biased = of_.biased.kernel;
  biased.size = flat.size;
  using Both = FusedPhases<Biased, RoundingStage<Value>>;
  cuda::Launch(stream_, Both{biased, {{how, how.values, flat.size}, value, SpanOf(y)}},
               flat.blocks);
  Forget();
  return true;
}

}  // namespace ada::backend::cuda
