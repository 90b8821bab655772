// `dynamic`: one global scale that grows after a window of clean attempts and falls on overflow
// (POLICIES 2). What every preset shares is Update and the two moves Lowered and Raised; when a
// move is due is OnOverflow's and OnClean's business, here as in torch.amp.GradScaler.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "scaling/policy.h"
#include "scaling/scale_check.h"
#include "scaling/state_text.h"

namespace ada::scaling {
namespace {

class DynamicPolicy final : public Policy {
 public:
  explicit DynamicPolicy(const DynamicParameters& parameters)
      : parameters_(parameters), scale_(CheckedScale("scaling.init_scale", parameters.init_scale)) {
    ADA_CHECK(parameters.growth_interval >= 1);
  }

  std::string_view name() const override { return "dynamic"; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) const override {
    LayerRule rule;
    rule.u_min = layer.u_min;
    rule.u_max = layer.u_max;
    return rule;
  }

  ScaleChange Update(bool overflow) override {
    const float before = scale_;
    overflow ? OnOverflow() : OnClean();
    ScaleChange change{before, scale_, ""};
    if (scale_ != before) {
      change.reason =
          overflow ? "overflow" : std::to_string(parameters_.growth_interval) + " clean steps";
    }
    return change;
  }

  StateMap SaveState() const override {
    return {{"scale", ToHex(scale_)}, {"growth_tracker", std::to_string(growth_tracker_)}};
  }
  void LoadState(const StateMap& state) override {
    ExpectKeys(state, name(), {"scale", "growth_tracker"});
    const double scale = ReadHex(state, "scale");
    const std::int64_t tracker = ReadInteger(state, "growth_tracker");
    const bool fp32 = std::isfinite(scale) && static_cast<float>(scale) == scale;
    if (!fp32 || scale < 0 || tracker < 0 || tracker >= parameters_.growth_interval) {
      throw DataError("scaling state of 'dynamic': scale " + state.at("scale") +
                      ", growth_tracker " + state.at("growth_tracker") +
                      " do not fit; expected an fp32 scale and a count below growth_interval (" +
                      std::to_string(parameters_.growth_interval) + ")");
    }
    scale_ = static_cast<float>(scale);
    growth_tracker_ = tracker;
  }

 private:
  void OnOverflow() {
    scale_ = Lowered();
    growth_tracker_ = 0;
  }

  void OnClean() {
    if (++growth_tracker_ != parameters_.growth_interval) return;
    growth_tracker_ = 0;
    const float raised = Raised();
    if (std::isfinite(raised)) scale_ = raised;
  }

  // The factors are doubles and the fp32 scale is rounded once, as torch does.
  float Lowered() const {
    return static_cast<float>(std::max(scale_ * parameters_.backoff_factor, parameters_.min_scale));
  }
  float Raised() const {
    const double raised = scale_ * parameters_.growth_factor;
    const bool bound = parameters_.max_scale > 0;
    return static_cast<float>(bound ? std::min(raised, parameters_.max_scale) : raised);
  }

  DynamicParameters parameters_;
  float scale_;                      // 0 once it has fallen that far: then it stays
  std::int64_t growth_tracker_ = 0;  // clean attempts since the last change of scale or overflow
};

}  // namespace

std::unique_ptr<Policy> MakeDynamic(const DynamicParameters& parameters) {
  return std::make_unique<DynamicPolicy>(parameters);
}

}  // namespace ada::scaling
