// `histogram` (Graphcore's automatic loss scaling): once in each period, S is halved if more than a
// share `threshold` of the gradients is above bin_edge times the format's largest value, otherwise
// doubled. The original never skips and so trains with overflowed gradients; here such an attempt
// is skipped, and at a period's end it counts as too high.
#include <algorithm>
#include <cmath>

#include "error.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// Counts only the last attempt of each period, so that all others cost nothing; the scale moves
// after it, by a factor of two.
class HistogramPolicy final : public Policy {
 public:
  explicit HistogramPolicy(const HistogramParameters& parameters)
      : p_(parameters), scale_(CheckedScale("scaling.init_scale", parameters.init_scale)) {}

  std::string_view name() const override { return "histogram"; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) override { return PassRule(layer); }
  // The last attempt of each period is counted.
  StatsRequest RequiredStats() const override {
    StatsRequest request;
    if (attempts_ + 1 == p_.update_period) request.edge = p_.bin_edge;
    return request;
  }

  ScaleUpdate Update(const StepOutcome& attempt) override {
    ScaleUpdate update{attempt.overflow ? Action::kSkip : Action::kUpdate, scale_, scale_, "", ""};
    if (++attempts_ < p_.update_period) return update;
    attempts_ = 0;
    const std::int64_t counted = attempt.above + attempt.below;
    if (counted == 0 && !attempt.overflow) return update;  // nothing was rounded
    const bool high = attempt.overflow || static_cast<double>(attempt.above) >
                                              p_.threshold * static_cast<double>(counted);
    scale_ = static_cast<float>(high ? std::max(scale_ / 2.0, p_.min_scale)
                                     : std::min(scale_ * 2.0, p_.max_scale));
    update.after = scale_;
    if (update.after != update.before) update.reason = Reason(attempt, counted);
    return update;
  }

  bool CountsAboveEdge() const override { return true; }
  StateMap SaveState() const override {
    return {{"scale", ToHex(scale_)}, {"attempts", std::to_string(attempts_)}};
  }
  void LoadState(const StateMap& state) override {
    ExpectKeys(state, name(), {"scale", "attempts"});
    const double scale = ReadHex(state, "scale");
    const std::int64_t attempts = ReadInteger(state, "attempts");
    const bool fp32 = scale > 0 && std::isfinite(scale) && static_cast<float>(scale) == scale;
    if (!fp32 || attempts < 0 || attempts >= p_.update_period) {
      throw DataError("scaling state of 'histogram': scale " + state.at("scale") + ", attempts " +
                      state.at("attempts") +
                      " do not fit; expected an fp32 scale and a count below update_period (" +
                      std::to_string(p_.update_period) + ")");
    }
    scale_ = static_cast<float>(scale);
    attempts_ = attempts;
  }

 private:
  std::string Reason(const StepOutcome& attempt, std::int64_t counted) const {
    if (attempt.overflow) return "overflow at the period's end";
    return std::to_string(attempt.above) + " of " + std::to_string(counted) +
           " gradients above the edge";
  }

  HistogramParameters p_;
  float scale_;
  std::int64_t attempts_ = 0;  // of the present period
};

}  // namespace

std::unique_ptr<Policy> MakeHistogram(const HistogramParameters& parameters) {
  CheckBounds(parameters.min_scale, parameters.max_scale);
  if (parameters.update_period < 1) {
    throw ConfigError("scaling.update_period: " + std::to_string(parameters.update_period) +
                      ", expected 1 or more");
  }
  return std::make_unique<HistogramPolicy>(parameters);
}

const PolicyKind kHistogram = {
    "histogram", [](Settings& settings) { FillUnset(settings, settings.histogram); },
    [](const Settings& settings) { return MakeHistogram(With(settings, settings.histogram)); },
    [] {
      const HistogramParameters p;
      return std::vector<std::string>{
          "histogram: one global S, halved or doubled each period by the share of gradients above "
          "bin_edge of the format's largest value; Graphcore automatic loss scaling; init_scale " +
          ShortestText(p.init_scale) + ", update_period " + std::to_string(p.update_period) +
          ", bin_edge " + ShortestText(p.bin_edge) + ", threshold " + ShortestText(p.threshold) +
          ", min_scale " + ShortestText(p.min_scale) + ", max_scale " + ShortestText(p.max_scale)};
    }};

}  // namespace ada::scaling
