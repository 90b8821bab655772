// `dynamic`: one global scale, moved by a preset's machine. This file holds the scale and its
// state; the machines and ScaleArithmetic decide when and how far it moves.
#include <algorithm>
#include <utility>

#include "error.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/dynamic_machine.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// Under `deferred` there are two scales: that of the present attempt, and the one that the attempt
// before decided on.
class DynamicPolicy final : public Policy {
 public:
  DynamicPolicy(const DynamicParameters& parameters, const DynamicTraits& traits)
      : arithmetic_(parameters, traits),
        machine_(MakeMachine(parameters, traits)),
        deferred_(traits.deferred),
        ends_at_zero_(traits.ends_at_zero),
        growth_interval_(parameters.growth_interval),
        scale_(arithmetic_.Start()),
        next_(scale_) {}

  std::string_view name() const override { return "dynamic"; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) override { return PassRule(layer); }

  Action OnOverflow() const override {
    return machine_->Repairs(deferred_ ? next_ : scale_) ? Action::kSanitize : Action::kSkip;
  }

  // Only presets without a floor reach a scale of 0; apex divides by it, and its run ends
  // there.
  ScaleUpdate Update(const StepOutcome& attempt) override {
    ScaleUpdate update;
    update.before = scale_;
    if (ends_at_zero_ && scale_ == 0) return EndAtZero(update);
    if (deferred_) scale_ = next_;
    Move move{scale_, attempt.overflow ? Action::kSkip : Action::kUpdate, "", ""};
    attempt.overflow ? machine_->OnOverflow(move) : machine_->OnClean(move);
    (deferred_ ? next_ : scale_) = move.scale;
    update.action = move.action;
    update.after = scale_;
    update.error = move.error;
    if (update.after == update.before) return update;
    update.reason = (deferred_ ? LateReason(update) : move.reason) + StaysForGood(update.after);
    return update;
  }

  StateMap SaveState() const override {
    StateMap state{{"scale", ToHex(scale_)}};
    if (deferred_) state["next_scale"] = ToHex(next_);
    for (const Counter& counter : machine_->Counters())
      state[counter.name] = std::to_string(*counter.value);
    return state;
  }

  // Everything is read before anything is changed, so that a bad state leaves the policy as it was.
  void LoadState(const StateMap& state) override {
    const std::vector<Counter> counters = machine_->Counters();
    std::vector<std::string_view> keys{"scale"};
    if (deferred_) keys.emplace_back("next_scale");
    for (const Counter& counter : counters) keys.emplace_back(counter.name);
    ExpectKeys(state, name(), keys);
    const double scale = ReadScale(state, "scale");
    const double next = deferred_ ? ReadScale(state, "next_scale") : scale;
    std::vector<std::int64_t> values;
    for (const Counter& counter : counters) values.push_back(ReadCounter(state, counter));
    for (std::size_t i = 0; i < counters.size(); ++i) std::swap(*counters[i].value, values[i]);
    if (!machine_->Fits(scale)) {
      for (std::size_t i = 0; i < counters.size(); ++i) *counters[i].value = values[i];
      throw DataError("scaling state of 'dynamic': scale " + state.at("scale") +
                      " and the counters beside it do not belong together");
    }
    scale_ = scale;
    next_ = next;
  }

 private:
  static ScaleUpdate EndAtZero(ScaleUpdate update) {
    update.action = Action::kSkip;
    update.after = 0;
    update.error =
        "the scale has fallen to 0, by which this system divides (a ZeroDivisionError there): "
        "gradients have overflowed at every scale, so a smaller one cannot help; look for the "
        "first tensor that is not finite, or set scaling.min_scale";
    return update;
  }
  // Deferred: the attempt before this one decided.
  std::string LateReason(const ScaleUpdate& update) const {
    if (update.after < update.before) return "overflow one attempt ago";
    return std::to_string(growth_interval_) + " clean steps, one attempt ago";
  }
  double ReadScale(const StateMap& state, const std::string& key) const {
    const double scale = ReadHex(state, key);
    if (arithmetic_.Possible(scale)) return scale;
    throw DataError("scaling state of 'dynamic': " + key + " " + state.at(key) +
                    " is no scale of this preset; was the run started with other settings?");
  }
  static std::int64_t ReadCounter(const StateMap& state, const Counter& counter) {
    const std::int64_t value = ReadInteger(state, counter.name);
    if (value >= counter.least && value <= counter.most) return value;
    throw DataError("scaling state of 'dynamic': " + std::string(counter.name) + " is " +
                    std::to_string(value) + ", expected " + std::to_string(counter.least) + " .. " +
                    std::to_string(counter.most) + "; was the run started with other settings?");
  }

  ScaleArithmetic arithmetic_;
  std::unique_ptr<DynamicMachine> machine_;
  bool deferred_, ends_at_zero_;
  std::int64_t growth_interval_;
  double scale_;  // of the present attempt; 0 and inf never change again
  double next_;   // deferred: in force after the next attempt
};

[[noreturn]] void Refuse(const char* key, const std::string& value, const std::string& preset,
                         const std::string& expected) {
  throw ConfigError("scaling." + std::string(key) + ": " + value + " under preset " + preset +
                    ", expected " + expected);
}

// A parameter that differs from its default must be one that the preset's machine has.
void CheckKeys(const DynamicParameters& p, const DynamicPreset& preset) {
  const std::vector<std::string_view> keys = KeysOf(preset.name);
  auto check = [&](bool given, std::string_view key) {
    if (!given || std::find(keys.begin(), keys.end(), key) != keys.end()) return;
    throw ConfigError("scaling." + std::string(key) + ": preset " + std::string(preset.name) +
                      " knows no such key");
  };
  check(p.hysteresis != preset.parameters.hysteresis, "hysteresis");
  check(p.consecutive_hysteresis, "consecutive_hysteresis");
  check(p.tolerance != preset.parameters.tolerance, "tolerance");
  const DynamicParameters none;
  check(p.init_lg_scale != none.init_lg_scale, "init_lg_scale");
  check(p.lg_growth != none.lg_growth, "lg_growth");
  check(p.min_window != none.min_window, "min_window");
  check(p.max_window != none.max_window, "max_window");
}

// Checks the ranges in which the machines are defined; the configuration checks the ranges of
// single keys.
void CheckValues(const DynamicParameters& p) {
  auto text = [](double value) { return ShortestText(value); };
  if (p.growth_interval < 1)
    Refuse("growth_interval", std::to_string(p.growth_interval), p.preset, "1 or more");
  if (!(p.growth_factor >= 1))
    Refuse("growth_factor", text(p.growth_factor), p.preset, "1 or more");
  if (!(p.backoff_factor > 0 && p.backoff_factor <= 1))
    Refuse("backoff_factor", text(p.backoff_factor), p.preset, "a number above 0, at most 1");
  if (p.min_window < 1 || p.max_window <= p.min_window)
    Refuse("max_window", std::to_string(p.max_window), p.preset,
           "more than min_window, " + std::to_string(p.min_window));
  if (p.hysteresis < 1) Refuse("hysteresis", std::to_string(p.hysteresis), p.preset, "1 or more");
  if (!(p.tolerance >= 0 && p.tolerance <= 1))
    Refuse("tolerance", text(p.tolerance), p.preset, "a share, 0 .. 1");
  if (!(p.min_scale >= 0)) Refuse("min_scale", text(p.min_scale), p.preset, "0 or more");
  if (!(p.max_scale >= 0)) Refuse("max_scale", text(p.max_scale), p.preset, "0 or more");
  if (BoundsCross(p.min_scale, p.max_scale))
    Refuse("min_scale", text(p.min_scale), p.preset, "at most max_scale, " + text(p.max_scale));
}

DynamicParameters ParametersOf(const Settings& settings) {
  return With(settings, FindDynamicPreset(settings.preset).parameters);
}

// Keys that the preset does not have get its machine's defaults too. A bound of 0 that was
// not set stays unset. A bound of 0 means "none" in the parameters, as unset does in the
// settings.
void Fill(Settings& settings) {
  const DynamicParameters p = Resolved(ParametersOf(settings));
  const bool floor = settings.min_scale || p.min_scale != 0;
  const bool ceiling = settings.max_scale || p.max_scale != 0;
  FillUnset(settings, p);
  if (!floor) settings.min_scale.reset();
  if (!ceiling) settings.max_scale.reset();
}

}  // namespace

std::unique_ptr<Policy> MakeDynamic(const DynamicParameters& given) {
  const DynamicPreset& preset = FindDynamicPreset(given.preset);
  const DynamicParameters parameters = Resolved(given);
  CheckKeys(parameters, preset);
  CheckValues(parameters);
  return std::make_unique<DynamicPolicy>(parameters, preset.traits);
}

const PolicyKind kDynamic = {
    "dynamic", Fill, [](const Settings& settings) { return MakeDynamic(ParametersOf(settings)); },
    DescribePresets};

}  // namespace ada::scaling
