// `logmax` (OpenSeq2Seq's LogMax): S keeps the largest gradient `overflow_std_dev` standard
// deviations below 2^log_max, by running averages of its logarithm. Uses fp32 and the original's
// order: the variance suffers cancellation, so another precision would give another S.
#include <algorithm>
#include <cmath>

#include "error.h"
#include "io/text.h"
#include "scaling/policies/common_keys.h"
#include "scaling/policies/policies.h"

namespace ada::scaling {
namespace {

// The original uses log_max only when it records an overflow; its formula has this constant.
constexpr float kReferenceLogMax = 16;

// max and min that return NaN if `value` is NaN, as TensorFlow's do.
float AtLeast(float value, float bound) { return value < bound ? bound : value; }
float AtMost(float value, float bound) { return value > bound ? bound : value; }

// Two running averages of log2 of the largest gradient, a fast one for the mean and a slow one for
// the variance, each with a bias correction like Adam's moments.
class LogMaxPolicy final : public Policy {
 public:
  explicit LogMaxPolicy(const LogMaxParameters& parameters) : p_(parameters) {}

  std::string_view name() const override { return "logmax"; }
  double Scale() const override { return scale_; }
  LayerRule RuleFor(const LayerInfo& layer) override { return PassRule(layer); }
  StatsRequest RequiredStats() const override {
    StatsRequest request;
    request.amax = true;
    return request;
  }

  ScaleUpdate Update(const StepOutcome& attempt) override {
    const auto amax = static_cast<float>(attempt.amax);
    const bool overflow = attempt.overflow || !std::isfinite(amax);
    ScaleUpdate update;
    update.before = scale_;
    if (overflow) update.action = Action::kSkip;
    // For an overflow the original records 2^log_max, not log_max, and for zero gradients -inf:
    // both are reproduced.
    if (p_.reference) {
      Enter(overflow ? std::pow(2.0f, static_cast<float>(p_.log_max)) : Log2(amax));
    } else if (overflow || amax > 0) {  // gradients that are all zero are not recorded
      Enter(overflow ? static_cast<float>(p_.log_max) : Log2(amax));
    }
    update.after = scale_;
    const bool both_nan = std::isnan(update.before) && std::isnan(update.after);
    if (update.before == update.after || both_nan) return update;
    update.reason = overflow ? "overflow" : "largest gradient " + NineDigits(amax);
    return update;
  }

  StateMap SaveState() const override {
    return {{"scale", ToHex(scale_)},         {"mean", ToHex(mean_)},
            {"slow_mean", ToHex(slow_mean_)}, {"slow_square", ToHex(slow_square_)},
            {"weight", ToHex(rest_)},         {"slow_weight", ToHex(slow_rest_)}};
  }
  void LoadState(const StateMap& state) override {
    ExpectKeys(state, name(),
               {"scale", "mean", "slow_mean", "slow_square", "weight", "slow_weight"});
    LogMaxPolicy read(p_);
    read.scale_ = Read(state, "scale");
    read.mean_ = Read(state, "mean");
    read.slow_mean_ = Read(state, "slow_mean");
    read.slow_square_ = Read(state, "slow_square");
    read.rest_ = Read(state, "weight");
    read.slow_rest_ = Read(state, "slow_weight");
    *this = read;
  }

 private:
  static float Log2(float amax) { return std::log(amax) / std::log(2.0f); }

  // Records one logarithm: updates the averages, then the scale that follows from them.
  void Enter(float x) {
    const auto keep = static_cast<float>(p_.beta1), keep_slow = static_cast<float>(p_.beta2);
    const auto take = static_cast<float>(1 - p_.beta1),
               take_slow = static_cast<float>(1 - p_.beta2);
    mean_ = keep * mean_ + take * x;
    rest_ *= keep;
    slow_mean_ = keep_slow * slow_mean_ + take_slow * x;
    slow_square_ = keep_slow * slow_square_ + take_slow * (x * x);
    slow_rest_ *= keep_slow;
    const float mean = mean_ / (1 - rest_);
    const float slow_mean = slow_mean_ / (1 - slow_rest_);
    const float variance = slow_square_ / (1 - slow_rest_) - slow_mean * slow_mean;
    const float deviation = std::sqrt(AtLeast(variance, 0));
    const float cutoff = deviation * static_cast<float>(p_.overflow_std_dev) + mean;
    const float top = p_.reference ? kReferenceLogMax : static_cast<float>(p_.log_max);
    scale_ = AtLeast(AtMost(std::pow(2.0f, top - cutoff), static_cast<float>(p_.max_scale)),
                     static_cast<float>(p_.min_scale));
  }

  float Read(const StateMap& state, const char* key) const {
    const double value = ReadHex(state, key);
    const bool fp32 = std::isnan(value) || static_cast<float>(value) == value;
    // A gradient of zero leaves infinities in the original's averages.
    if (fp32 && (std::isfinite(value) || p_.reference)) return static_cast<float>(value);
    throw DataError("scaling state of 'logmax': " + std::string(key) + " " + state.at(key) +
                    ", expected a finite fp32 number; was the run started with other settings?");
  }

  LogMaxParameters p_;
  float scale_ = 1;
  float mean_ = 0, slow_mean_ = 0, slow_square_ = 0;  // running, without bias correction
  float rest_ = 1, slow_rest_ = 1;                    // beta1^k, beta2^k: for the bias correction
};

void CheckShare(const char* key, double value) {
  if (value >= 0 && static_cast<float>(value) < 1) return;  // the averages are computed in fp32
  throw ConfigError("scaling." + std::string(key) + ": " + ShortestText(value) +
                    ", expected a number between 0 and 1");
}

}  // namespace

std::unique_ptr<Policy> MakeLogMax(const LogMaxParameters& parameters) {
  CheckShare("beta1", parameters.beta1);
  CheckShare("beta2", parameters.beta2);
  CheckBounds(parameters.min_scale, parameters.max_scale);
  return std::make_unique<LogMaxPolicy>(parameters);
}

const PolicyKind kLogMax = {
    "logmax", [](Settings& settings) { FillUnset(settings, settings.logmax); },
    [](const Settings& settings) { return MakeLogMax(With(settings, settings.logmax)); },
    [] {
      const LogMaxParameters p;
      return std::vector<std::string>{
          "logmax: one global S from running averages of the largest gradient's logarithm; "
          "NVIDIA/OpenSeq2Seq open_seq2seq/optimizers/automatic_loss_scaler.py; beta1 " +
          ShortestText(p.beta1) + ", beta2 " + ShortestText(p.beta2) + ", overflow_std_dev " +
          ShortestText(p.overflow_std_dev) + ", log_max " + ShortestText(p.log_max) +
          ", min_scale " + ShortestText(p.min_scale) + ", max_scale " + ShortestText(p.max_scale) +
          ", reference false"};
    }};

}  // namespace ada::scaling
