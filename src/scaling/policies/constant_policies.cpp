// `none` and `fixed`: one scale for the whole run and every layer, no state.
#include "scaling/policies/pass_rule.h"
#include "scaling/policies/policy.h"
#include "scaling/rules/scale_check.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

class ConstantPolicy final : public Policy {
 public:
  ConstantPolicy(std::string_view name, float scale) : name_(name), scale_(scale) {}

  std::string_view name() const override { return name_; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) override { return PassRule(layer); }
  ScaleUpdate Update(const StepOutcome& attempt) override {
    return {attempt.overflow ? Action::kSkip : Action::kUpdate, scale_, scale_, "", ""};
  }
  StateMap SaveState() const override { return {}; }
  void LoadState(const StateMap& state) override { ExpectKeys(state, name_, {}); }

 private:
  std::string_view name_;
  float scale_;
};

}  // namespace

std::unique_ptr<Policy> MakeNone(double init_scale) {
  return std::make_unique<ConstantPolicy>("none", CheckedScale("scaling.init_scale", init_scale));
}

std::unique_ptr<Policy> MakeFixed(double scale) {
  return std::make_unique<ConstantPolicy>("fixed", CheckedScale("scaling.scale", scale));
}

}  // namespace ada::scaling
