// The sums are made on the host, in segments that several threads share; counts are added in the
// order of segments, so any number of threads gives the same bytes.
#include "step/accumulated_gradients.h"

#include <algorithm>

#include "backend/update_rounding.h"
#include "io/run_in_parallel.h"
#include "number/random.h"

namespace ada::step {
namespace {

constexpr std::int64_t kValues = 1 << 16;  // of a segment

}  // namespace

AccumulatedGradients::AccumulatedGradients(const config::Config& config, graph::Graph& graph,
                                           DistributedGradients& distributed)
    : graph_(graph), distributed_(distributed) {
  const config::KeptFormatConfig& how = config.precision.accumulated_gradients;
  format_ = how.format, stochastic_ = how.rounding == config::RoundingKind::kStochastic;
  if (format_ == kFp32) return;
  if (config.precision.overflow == config::OverflowKind::kSaturate) format_.saturate = true;
  sums_.resize(distributed.order().size());
}

void AccumulatedGradients::Take(const backend::Pass& pass, bool last) {
  const NumberGrid grid = GridOf(format_);
  backend::UpdateRounding how;
  how.seed = pass.seed, how.draw = pass.draw;
  for (std::size_t place = 0; place < sums_.size(); ++place) {
    const graph::Parameter& parameter = distributed_.ParameterAt(place);
    const Tensor& gradient = parameter.gradient;
    const std::uint64_t stream = StreamId("accumulated:" + parameter.name);
    std::vector<float>& sum = sums_[place];
    const std::int64_t n = gradient.shape.numel();
    part_.resize(static_cast<std::size_t>(n));
    distributed_.backend().Download(part_.data(), gradient.data, gradient.bytes());
    if (!pass.accumulate) sum.assign(part_.size(), 0);
    std::vector<backend::UpdateCounts> counts(static_cast<std::size_t>((n + kValues - 1) / kValues),
                                              backend::UpdateCounts::Start());
    RunRangesInParallel(n, kValues, [&](std::int64_t begin, std::int64_t end) {
      backend::UpdateCounts& count = counts[static_cast<std::size_t>(begin / kValues)];
      for (std::int64_t i = begin; i < end; ++i) {
        float& part = part_[static_cast<std::size_t>(i)];
        float& kept = sum[static_cast<std::size_t>(i)];
        const float before = kept, wide = before + part;
        kept = backend::RoundKept(grid, stochastic_, how, stream, 0, i, wide);
        if (pass.count) count.AddChange(grid, part, before, wide, kept);
        part = last ? kept : 0.0f;
      }
    });
    distributed_.backend().Upload(gradient.data, part_.data(), gradient.bytes());
    if (!pass.count) continue;
    for (std::size_t i = 1; i < counts.size(); ++i) counts[0].Merge(counts[i]);
    const TensorStats stats = StatsOf(counts[0]);
    lost_.resize(sums_.size());
    lost_[place] = pass.accumulate ? CombinedStats(lost_[place], stats) : stats;
  }
}

DistributedGradients::Transport AccumulatedGradients::Lost() {
  return {distributed_.ByLayer(lost_), format_, 1};
}

}  // namespace ada::step
