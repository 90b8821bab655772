// See row_chain.h.
#include "backend/cuda/rounding/row_chain.h"

#include <algorithm>
#include <utility>

namespace ada::backend::cuda {
namespace {

// Stages in their order.
enum Stage : std::uint8_t { kBiased, kDropped, kSum, kNorm };

}  // namespace

bool RowChain::Takes(const Pass& pass, const RoundingStats& stats) const {
  return open_ && stream_.switches().fused && stats.Level(pass) == StatsLevel::kLargest;
}

template <class Stage, class Value>
bool RowChain::Add(int number, Stage& stage, const Pass& pass, const RoundingStats& stats,
                   const Tensor& y, const Value& value) {
  const Rounding how = stats.For(pass);
  stage.kernel = {{how, how.values, 0}, value, SpanOf(y)};
  stage.active = true;
  alone_ = nullptr;
  if (stages_ == 0)
    alone_ = [pass, &stats, out = SpanOf(y), value] { stats.Round(pass, out, value); };
  ++stages_, last_ = number;
  out_ = y.data, values_ = how.values;
  return true;
}

bool RowChain::Leave(const Pass& pass, const RoundingStats& stats, const Tensor& y,
                     const BiasedSum& value) {
  Launch();
  return Takes(pass, stats) && Add(kBiased, of_.biased, pass, stats, y, value);
}
bool RowChain::Leave(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
                     const DroppedOut& value) {
  const bool takes = Takes(pass, stats);
  if (!takes || !Makes(x, kDropped, stats.For(pass).values)) Launch();
  return takes && Add(kDropped, of_.dropped, pass, stats, y, value);
}
bool RowChain::Leave(const Pass& pass, const RoundingStats& stats, const std::vector<Tensor>& x,
                     const Tensor& y, const SumValue& value) {
  const bool takes = Takes(pass, stats);
  if (!takes || std::none_of(x.begin(), x.end(), [&](const Tensor& one) {
        return Makes(one, kSum, stats.For(pass).values);
      }))
    Launch();
  return takes && Add(kSum, of_.sum, pass, stats, y, value);
}

bool RowChain::End(const Pass& pass, const RoundingStats& stats, const Tensor& x, const Tensor& y,
                   const GroupStatistics& by_group, const GroupedNormValue& value) {
  if (!by_group.geometry.by_pixel || !Takes(pass, stats) ||
      !Makes(x, kNorm, stats.For(pass).values)) {
    Launch();
    return false;
  }
  Add(kNorm, of_.norm, pass, stats, y, value);
  of_.statistics = {by_group, true};
  LaunchStages(GroupThreads::kGroups * by_group.geometry.run,
               GroupThreads::Blocks(by_group.groups));
  return true;
}

void RowChain::Launch() {
  if (stages_ == 0) return;
  if (stages_ > 1) {
    const FlatBlocks flat = FlatBlocksOf(values_);
    return LaunchStages(flat.size, flat.blocks);
  }
  const std::function<void()> alone = std::exchange(alone_, nullptr);
  Forget();
  alone();
}

void RowChain::Around(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    Forget();
    throw;
  }
  Launch();
}

void RowChain::LaunchStages(std::int64_t size, int blocks) {
  of_.biased.kernel.size = of_.dropped.kernel.size = size;
  of_.sum.kernel.size = of_.norm.kernel.size = size;
  const RowChainKernel kernel{of_.biased, {of_.dropped, {of_.sum, {of_.statistics, of_.norm}}}};
  Forget();
  cuda::Launch(stream_, kernel, blocks);
}

void RowChain::Forget() {
  of_.biased.active = of_.dropped.active = of_.sum.active = false;
  of_.statistics.active = of_.norm.active = false;
  stages_ = 0, last_ = -1;
  out_ = nullptr, alone_ = nullptr;
}

}  // namespace ada::backend::cuda
