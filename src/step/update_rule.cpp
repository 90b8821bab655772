// Names of layouts become formats, maps and scales of states.
#include <algorithm>
#include <limits>

#include "backend/state_maps.h"
#include "number/tensor.h"
#include "optim/states.h"
#include "step/specs.h"

namespace ada::step {
namespace {

using backend::StateStorage;
using backend::UpdateRule;

// An average of squares (or of magnitudes) is not negative.
bool IsSquare(const std::string& state) {
  return state == "exp_avg_sq" || state == "max_exp_avg_sq" || state == "square_avg" ||
         state == "sum" || state == "exp_inf" || state == "variance";
}
bool IsMomentum(const std::string& state) {
  return state == "momentum" || state == "velocity" || state == "momentum_buffer";
}

NumberFormat Ended(NumberFormat format, const config::PrecisionConfig& precision) {
  if (precision.overflow == config::OverflowKind::kSaturate && format != kFp32)
    format.saturate = true;
  return format;
}

// Transformer Engine leaves room of a factor of 2 in fp16, and scales no format with fp32's range.
void ScaleByTensor(StateStorage& kept) {
  if (kept.format.exponent_bits >= 8) return;
  kept.scaling = StateStorage::Scaling::kTensor;
  kept.top = kept.format.largest() / (HasValuesOf(kFp16, kept.format) ? 2 : 1);
}
void ScaleByBlock(StateStorage& kept, std::int64_t block) {
  if (kept.format.exponent_bits >= 8) return;
  kept.scaling = StateStorage::Scaling::kBlock;
  kept.block = block, kept.top = kept.format.largest(), kept.least = 1e-12f;
}
void TakeMap(StateStorage& kept, StateStorage::Map map, std::int64_t block) {
  kept.scaling = StateStorage::Scaling::kBlock;
  kept.map = map, kept.block = block, kept.top = 1;
  kept.least = map == StateStorage::Map::kBitsandbytes ? 0 : 1e-12f;
}

// Tensors of fewer values stay fp32 in torchao and bitsandbytes.
constexpr std::int64_t kLeastValues = 4096;

StateStorage OfLayout(const std::string& layout, bool is_square) {
  StateStorage kept;
  kept.is_signed = !is_square;
  if (layout == "te_fp16" || layout == "te_fp8") {
    kept.format = layout == "te_fp16" ? kFp16 : kFp8E4M3;
    ScaleByTensor(kept);
    return kept;
  }
  kept.from = kLeastValues, kept.whole = layout != "bitsandbytes_8bit";
  if (layout == "torchao_fp8") {
    kept.format = kFp8E4M3;
    ScaleByBlock(kept, 256);
  } else if (layout == "torchao_4bit") {
    TakeMap(kept, StateStorage::Map::kTorchao4, 128);
  } else {
    const bool torchao = layout == "torchao_8bit";
    TakeMap(kept, torchao ? StateStorage::Map::kTorchao8 : StateStorage::Map::kBitsandbytes, 256);
  }
  return kept;
}

StateStorage OfKeys(const config::OptimizerStateConfig& how,
                    const config::PrecisionConfig& precision, const std::string& state) {
  StateStorage kept;
  kept.format = how.format;
  kept.is_signed = !IsSquare(state);
  if (IsSquare(state) && how.exp_avg_sq) kept.format = *how.exp_avg_sq;
  if (IsMomentum(state) && how.momentum) kept.format = *how.momentum;
  if (state == "exp_avg" && how.exp_avg) kept.format = *how.exp_avg;
  kept.format = Ended(kept.format, precision);
  kept.stochastic = how.rounding == config::RoundingKind::kStochastic;
  if (how.scaling == StateStorage::Scaling::kNone || kept.format == kFp32) return kept;
  const int bits = 1 + kept.format.exponent_bits + kept.format.mantissa_bits;
  if (how.map == config::OptimizerStateConfig::Map::kDynamic && bits <= 8) {
    TakeMap(kept, bits <= 4 ? StateStorage::Map::kTorchao4 : StateStorage::Map::kBitsandbytes,
            how.block);
    if (how.scaling == StateStorage::Scaling::kTensor) kept.scaling = how.scaling;
  } else if (how.scaling == StateStorage::Scaling::kTensor) {
    ScaleByTensor(kept);
  } else {
    ScaleByBlock(kept, how.block);
  }
  return kept;
}

bool NeedsLayout(const config::OptimizerStateConfig& how) {
  return !how.layout.empty() || how.exp_avg || how.exp_avg_sq || how.momentum ||
         how.scaling != StateStorage::Scaling::kNone;
}

// torch and torch-optimi round each operation on parameters of 16 bits. Kahan's sums are
// torch-optimi's; masters and states in one format are a parameter of that type.
UpdateRule::Arithmetic ArithmeticOf(const config::PrecisionConfig& precision) {
  using Arithmetic = UpdateRule::Arithmetic;
  const config::MastersConfig& masters = precision.masters;
  if (masters.arithmetic) return *masters.arithmetic;
  if (masters.compensation == UpdateRule::Compensation::kKahan) return Arithmetic::kOptimi;
  const config::OptimizerStateConfig& state = precision.optimizer_state;
  const bool nearest = masters.rounding == config::RoundingKind::kNearest &&
                       state.rounding == config::RoundingKind::kNearest;
  const bool one = masters.format != kFp32 && masters.format == state.format && !NeedsLayout(state);
  const bool none = masters.compensation == UpdateRule::Compensation::kNone;
  return one && nearest && none ? Arithmetic::kTorch : Arithmetic::kFp32;
}

void TakePrecision(const config::PrecisionConfig& precision, UpdateRule& rule) {
  const auto kept = [&](const config::StorageFormatConfig& how) {
    return backend::StorageFormat{Ended(how.format, precision),
                                  how.rounding == config::RoundingKind::kStochastic};
  };
  rule.masters = kept(precision.masters);
  rule.compensation = precision.masters.compensation;
  rule.arithmetic = ArithmeticOf(precision);
  const config::OptimizerStateConfig& how = precision.optimizer_state;
  if (!NeedsLayout(how)) {
    rule.state = kept(how);
    return;
  }
  std::array<StateStorage, backend::kMostStates> states;
  // The matrix decides the names of adafactor's states, none of which has a format.
  for (const optim::StateSpec& state : optim::StatesOf(rule))
    states[state.slot] = how.layout.empty() ? OfKeys(how, precision, state.name)
                                            : OfLayout(how.layout, IsSquare(state.name));
  rule.states = std::make_shared<const std::array<StateStorage, backend::kMostStates>>(states);
}

}  // namespace

UpdateRule UpdateRuleOf(const config::OptimizerConfig& optimizer,
                        const config::PrecisionConfig& precision) {
  UpdateRule rule = optimizer;
  std::copy_n(optimizer.ns_coefficient_list.begin(), rule.ns_coefficients.size(),
              rule.ns_coefficients.begin());
  TakePrecision(precision, rule);
  if (rule.kind != UpdateRule::Kind::kMuon) return rule;
  if (precision.accumulate.newton_schulz) rule.ns_sums = precision.accumulate.newton_schulz->rule;
  UpdateRule others = optimizer.other;
  TakePrecision(precision, others);
  rule.others = std::make_shared<const UpdateRule>(others);
  rule.others_lr = optimizer.other.lr / optimizer.lr;
  return rule;
}

std::string StateFormatName(const config::PrecisionConfig& precision, const UpdateRule& rule,
                            const std::string& state) {
  const config::OptimizerStateConfig& how = precision.optimizer_state;
  if (!how.layout.empty()) return how.layout;
  if (rule.states == nullptr) return FormatName(how.format);
  const StateStorage kept = OfKeys(how, precision, state);
  if (!kept.is_scaled()) return FormatName(kept.format);
  const std::string name = kept.map == StateStorage::Map::kFormat     ? FormatName(kept.format)
                           : kept.map == StateStorage::Map::kTorchao4 ? "dynamic_4bit"
                                                                      : "dynamic_8bit";
  return name + (kept.scaling == StateStorage::Scaling::kTensor
                     ? " scaled by tensor"
                     : " scaled by " + std::to_string(kept.block));
}

// Weight gradients are fp32, so what replaces them is one of its numbers.
void AddRepair(const scaling::OverflowRepair& repair, double scale, backend::UpdatePlan& plan) {
  constexpr double kLeast = std::numeric_limits<float>::denorm_min(),
                   kMost = std::numeric_limits<float>::max();
  plan.on_overflow = backend::UpdatePlan::OnOverflow::kSanitize;
  plan.only_nonfinite = true;
  plan.nan_to = static_cast<float>(std::clamp(repair.nan / scale, -kMost, kMost));
  plan.sanitize_to = static_cast<float>(std::clamp(repair.inf / scale, kLeast, kMost));
}

}  // namespace ada::step
