// The sums are made on the host, in segments that several threads share; counts are added up in the
// order of segments, so any number of threads gives the same bytes.
#include "step/accumulated_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/update_rounding.h"
#include "io/run_in_parallel.h"
#include "number/random.h"

namespace ada::step {
namespace {

constexpr std::int64_t kValues = 1 << 16;  // of a segment

std::size_t SegmentsOf(std::int64_t n) {
  return static_cast<std::size_t>((n + kValues - 1) / kValues);
}

constexpr char kPrefix[] = "accumulated:";

}  // namespace

AccumulatedGradients::AccumulatedGradients(const config::Config& config,
                                           DistributedGradients& distributed)
    : distributed_(distributed) {
  const config::AccumulatedGradientsConfig& how = config.precision.accumulated_gradients;
  format_ = how.format, stochastic_ = how.rounding == config::RoundingKind::kStochastic;
  if (format_ == kFp32) return;
  if (config.precision.overflow == config::OverflowKind::kSaturate || how.scales())
    format_.saturate = true;
  grid_ = GridOf(format_), scales_ = how.scales(), rule_ = how.rule;
  sums_.resize(distributed.order().size());
  scaled_.resize(sums_.size());
  for (std::size_t place = 0; place < sums_.size(); ++place) {
    scaled_[place].rounds = !scales_ || IsMatrix(distributed.ParameterAt(place));
    scaled_[place].state.mu = scaling::FirstMu(distributed.team().ranks());
  }
}

void AccumulatedGradients::Take(const backend::Pass& pass, bool last) {
  for (std::size_t place = 0; place < sums_.size(); ++place) Add(pass, place, last);
  if (last && scales_ && distributed_.are_parts()) ShareScales();
}

// The largest magnitude of the sum with the parts in part_; inf or NaN where one is not finite.
float AccumulatedGradients::LargestOf(const std::vector<float>& sum, float inverse) const {
  const auto n = std::ssize(sum);
  std::vector<std::uint32_t> most(SegmentsOf(n));
  RunRangesInParallel(n, kValues, [&](std::int64_t begin, std::int64_t end) {
    std::uint32_t& largest = most[static_cast<std::size_t>(begin / kValues)];
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      largest = std::max(largest, MagnitudeBits(sum[i] * inverse + part_[i]));
  });
  return OfBits(most.empty() ? 0 : *std::max_element(most.begin(), most.end()));
}

// Without a scale `at` is 1, and nothing below is changed by it.
void AccumulatedGradients::Add(const backend::Pass& pass, std::size_t place, bool last) {
  const graph::Parameter& parameter = distributed_.ParameterAt(place);
  const Tensor& gradient = parameter.gradient;
  const std::uint64_t stream = StreamId("accumulated:" + parameter.name);
  backend::UpdateRounding how;
  how.seed = pass.seed, how.draw = pass.draw;
  std::vector<float>& sum = sums_[place];
  Scaled& scaled = scaled_[place];
  const std::int64_t n = gradient.shape.numel();
  part_.resize(static_cast<std::size_t>(n));
  distributed_.backend().Download(part_.data(), gradient.data, gradient.bytes());
  if (!pass.accumulate) sum.assign(part_.size(), 0);
  const float inverse = 1.0f / scaled.at;
  scaled.finite = true;
  if (scales_ && scaled.rounds) {
    const float largest = LargestOf(sum, inverse);
    scaled.finite = std::isfinite(largest);
    if (scaled.finite)
      scaled.state.scale =
          scaling::ScaleOfSum(format_.largest(), largest, scaled.state.mu, scaled.state.scale);
    scaled.at = scaled.finite ? scaled.state.scale : 1;
  }
  const float scale = scaled.at, back = 1.0f / scale;
  const bool rounds = scaled.rounds && scaled.finite;
  const auto top = static_cast<float>(format_.largest());
  std::vector<backend::UpdateCounts> counts(SegmentsOf(n), backend::UpdateCounts::Start());
  std::vector<std::int64_t> saturated(counts.size());
  RunRangesInParallel(n, kValues, [&](std::int64_t begin, std::int64_t end) {
    const auto segment = static_cast<std::size_t>(begin / kValues);
    backend::UpdateCounts& count = counts[segment];
    for (std::int64_t i = begin; i < end; ++i) {
      float& part = part_[static_cast<std::size_t>(i)];
      float& kept = sum[static_cast<std::size_t>(i)];
      const float before = kept * inverse, wide = before + part, asked = wide * scale;
      kept = rounds ? backend::RoundKept(grid_, stochastic_, how, stream, 0, i, asked) : asked;
      if (pass.count && scaled.rounds) count.AddChange(grid_, part, before * scale, asked, kept);
      saturated[segment] += scales_ && std::fabs(kept) >= top;
      part = last ? kept * back : 0.0f;
    }
  });
  scaled.saturated = std::accumulate(saturated.begin(), saturated.end(), std::int64_t{0});
  distributed_.backend().Upload(gradient.data, part_.data(), gradient.bytes());
  if (!pass.count) return;
  for (std::size_t i = 1; i < counts.size(); ++i) counts[0].Merge(counts[i]);
  const TensorStats stats = scaled.rounds ? StatsOf(counts[0]) : TensorStats{};
  lost_.resize(sums_.size());
  lost_[place] = pass.accumulate ? CombinedStats(lost_[place], stats) : stats;
}

// All processes take the smallest of their scales, and round again what carried a larger one. A
// gradient that is not finite in one of them is added up as it is.
void AccumulatedGradients::ShareScales() {
  std::vector<float> scales;
  for (const Scaled& scaled : scaled_) scales.push_back(scaled.finite ? scaled.at : 0);
  const std::vector<float> all = parallel::GatherAll(distributed_.team().all(), scales);
  for (std::size_t i = 0; i < all.size(); ++i)
    scales[i % scales.size()] = std::min(scales[i % scales.size()], all[i]);
  for (std::size_t place = 0; place < scales.size(); ++place) {
    Scaled& scaled = scaled_[place];
    float& scale = scales[place];
    if (scale == 0) scaled.finite = false, scale = 1;
    if (!scaled.rounds || !scaled.finite || scale == scaled.at) continue;
    part_ = sums_[place];
    for (float& value : part_)
      value = RoundToGrid(grid_, value * (1.0f / scaled.at) * scale) * (1.0f / scale);
    const Tensor& gradient = distributed_.ParameterAt(place).gradient;
    distributed_.backend().Upload(gradient.data, part_.data(), gradient.bytes());
    scaled.at = scaled.state.scale = scale;
  }
  distributed_.CarryScales(std::move(scales));
}

std::vector<HalvedMu> AccumulatedGradients::MoveScales(std::int64_t step) {
  std::vector<HalvedMu> halved;
  if (!scales_ || step % rule_.interval != 0) return halved;
  for (std::size_t place = scaled_.size(); place-- > 0;) {  // layers in forward order
    Scaled& scaled = scaled_[place];
    if (!scaled.rounds || !scaled.finite) continue;
    const graph::Parameter& parameter = distributed_.ParameterAt(place);
    const std::int64_t saturated =
        distributed_.are_parts() ? distributed_.saturated()[place] : scaled.saturated;
    const float before = scaled.state.mu;
    scaled.state.mu = scaling::NextMu(rule_, before, saturated, parameter.numel());
    if (scaled.state.mu < before)
      halved.push_back({parameter.layer, parameter.name,
                        static_cast<double>(saturated) / static_cast<double>(parameter.numel()),
                        before, scaled.state.mu});
  }
  return halved;
}

DistributedGradients::Transport AccumulatedGradients::Lost() {
  std::vector<float> scales;
  if (scales_)
    for (const Scaled& scaled : scaled_) scales.push_back(scaled.at);
  return {distributed_.ByLayer(lost_, scales), format_, 1};
}

std::map<std::string, scaling::StateMap> AccumulatedGradients::SaveScales() const {
  std::map<std::string, scaling::StateMap> saved;
  for (std::size_t place = 0; scales_ && place < scaled_.size(); ++place)
    if (scaled_[place].rounds)
      saved[kPrefix + distributed_.ParameterAt(place).name] =
          scaling::SaveSumScale(scaled_[place].state);
  return saved;
}

void AccumulatedGradients::LoadScales(const std::map<std::string, scaling::StateMap>& saved) {
  for (std::size_t place = 0; scales_ && place < scaled_.size(); ++place) {
    const std::string& name = distributed_.ParameterAt(place).name;
    const auto found = saved.find(kPrefix + name);
    if (found != saved.end() && scaled_[place].rounds)
      scaled_[place].state = scaling::LoadSumScale(found->second, name);
  }
}

}  // namespace ada::step
