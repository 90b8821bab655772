// `none` and `fixed`: one scale for the whole run and every layer, no state. An overflow skips the
// step, or what is not finite is replaced (on_overflow), as EDM and StyleGAN do.
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// Both policies; they differ only in their name and in the key that sets the scale.
class ConstantPolicy final : public Policy {
 public:
  ConstantPolicy(std::string_view name, float scale, const OverflowRepair& repair)
      : name_(name),
        scale_(scale),
        on_overflow_(repair.action == OverflowRepair::Action::kSanitize ? Action::kSanitize
                                                                        : Action::kSkip) {}

  std::string_view name() const override { return name_; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) override { return PassRule(layer); }
  Action OnOverflow() const override { return on_overflow_; }
  ScaleUpdate Update(const StepOutcome& attempt) override {
    return {attempt.overflow ? on_overflow_ : Action::kUpdate, scale_, scale_, "", ""};
  }
  StateMap SaveState() const override { return {}; }
  void LoadState(const StateMap& state) override { ExpectKeys(state, name_, {}); }
  bool ConstantScale() const override { return true; }

 private:
  std::string_view name_;
  float scale_;
  Action on_overflow_;
};

}  // namespace

std::unique_ptr<Policy> MakeNone(double init_scale, const OverflowRepair& repair) {
  return std::make_unique<ConstantPolicy>("none", CheckedScale("scaling.init_scale", init_scale),
                                          repair);
}

std::unique_ptr<Policy> MakeFixed(double scale, const OverflowRepair& repair) {
  return std::make_unique<ConstantPolicy>("fixed", CheckedScale("scaling.scale", scale), repair);
}

const PolicyKind kNone = {
    "none", [](Settings& settings) { settings.init_scale = settings.init_scale.value_or(1); },
    [](const Settings& settings) {
      return MakeNone(settings.init_scale.value_or(1), settings.on_overflow);
    },
    [] {
      return std::vector<std::string>{
          "none: every alpha is 1, all layers carry S = init_scale; plain training; init_scale 1"};
    }};

const PolicyKind kFixed = {
    "fixed", [](Settings&) {},
    [](const Settings& settings) { return MakeFixed(settings.scale, settings.on_overflow); },
    [] {
      return std::vector<std::string>{
          "fixed: every alpha is 1, all layers carry S = scale; static loss scaling (Micikevicius "
          "et al., ICLR 2018); scale 1"};
    }};

}  // namespace ada::scaling
