// `none` and `fixed`: one scale for the whole run and every layer, no state.
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// Both policies; they differ only in their name and in the key that sets the scale.
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
  bool ConstantScale() const override { return true; }

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

const PolicyKind kNone = {
    "none", [](Settings& settings) { settings.init_scale = settings.init_scale.value_or(1); },
    [](const Settings& settings) { return MakeNone(settings.init_scale.value_or(1)); },
    [] {
      return std::vector<std::string>{
          "none: every alpha is 1, all layers carry S = init_scale; plain training; init_scale 1"};
    }};

const PolicyKind kFixed = {
    "fixed", [](Settings&) {}, [](const Settings& settings) { return MakeFixed(settings.scale); },
    [] {
      return std::vector<std::string>{
          "fixed: every alpha is 1, all layers carry S = scale; static loss scaling (Micikevicius "
          "et al., ICLR 2018); scale 1"};
    }};

}  // namespace ada::scaling
