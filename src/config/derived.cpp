// What follows from several keys: see derived.h.
#include "config/derived.h"

#include <algorithm>
#include <limits>

#include "data/catalog.h"
#include "io/text.h"

namespace ada::config {

std::int64_t MaxRetries(const TrainConfig& train) {
  return train.on_overflow == OnOverflow::kRetry ? train.max_retries : 0;
}

bool DecidesByLoss(const Config& config) {
  return config.evaluate.metric == BestMetric::kLoss || config.task == Task::kLanguage;
}

bool TokensAreBytes(const Config& config) {
  return config.task == Task::kLanguage &&
         data::FactsOf(config.data.dataset).origin == data::Origin::kText;
}

// Tensors and data of other programs may be anything, so the numbers of images do not apply to
// them.
bool HasStandardNormalization(const Config& config) {
  const data::DatasetFacts& facts = data::FactsOf(config.data.dataset);
  return facts.origin != data::Origin::kTensors && facts.origin != data::Origin::kOtherProgram &&
         !facts.has_tokens();
}

// --- Statistics ---

namespace {

bool IsNarrow(const std::optional<NumberFormat>& format) { return format && *format != kFp32; }
constexpr int kWideBits = 16;  // of formats that hold nearly all activations
bool HasFewBits(const std::optional<NumberFormat>& format) {
  return format && 1 + format->exponent_bits + format->mantissa_bits < kWideBits;
}

bool RoundsSome(const OperandsConfig& operands) {
  const auto rounds = [](const auto& operand) { return operand && operand->format; };
  return std::any_of(operands.by_operand.begin(), operands.by_operand.end(), rounds) ||
         std::any_of(operands.attention.begin(), operands.attention.end(), rounds);
}

// What is true of some layer of one stretch of the schedule.
struct RoundedRoles {
  bool activations = false, weights = false, gradients = false, weight_gradients = false,
       operands = false;
  bool short_activations = false, short_weights = false;  // in a format of their own, of few bits

  void Add(const RoleFormatsConfig& roles, const std::optional<NumberFormat>& format) {
    activations = activations || IsNarrow(roles.activations ? roles.activations : format);
    short_activations = short_activations || HasFewBits(roles.activations);
    short_weights = short_weights || HasFewBits(roles.weights);
    weights = weights || IsNarrow(roles.weights ? roles.weights : format);
    gradients = gradients || IsNarrow(roles.gradients ? roles.gradients : format);
    weight_gradients = weight_gradients || IsNarrow(roles.weight_gradients);
  }
  void Add(const PrecisionConfig& precision) {
    Add(precision, precision.format);
    operands = operands || RoundsSome(precision.operands);
    for (const LayerPrecisionConfig& layer : precision.layers) {
      Add(layer, layer.format);
      operands = operands || RoundsSome(layer.operands);
    }
  }
};

RoundedRoles RolesOf(const PrecisionConfig& precision) {
  RoundedRoles rounded;
  rounded.Add(PrecisionAt(precision, 1));
  for (const PrecisionSwitchConfig& change : precision.schedule)
    rounded.Add(PrecisionAt(precision, change.from_step));
  return rounded;
}

}  // namespace

std::vector<std::string> AddedStatistics(const PrecisionConfig& precision) {
  const RoundedRoles rounded = RolesOf(precision);
  std::vector<std::string> words;
  if (rounded.short_activations) words.emplace_back("y");
  if (rounded.short_weights) words.emplace_back("w");
  if (rounded.operands) words.emplace_back("operands");
  return words;
}

std::vector<std::string> RoundedStatistics(const PrecisionConfig& precision) {
  const RoundedRoles rounded = RolesOf(precision);
  std::vector<std::string> words;
  if (rounded.gradients) words.insert(words.end(), {"dx", "dy"});
  if (rounded.weight_gradients) words.emplace_back("dw");
  if (rounded.activations) words.emplace_back("y");
  if (rounded.weights) words.emplace_back("w");
  if (rounded.operands) words.emplace_back("operands");
  return words;
}

std::vector<std::string> UncountedStatistics(const Config& config) {
  std::vector<std::string> words = RoundedStatistics(config.precision);
  words.erase(std::remove_if(
                  words.begin(), words.end(),
                  [&](const std::string& word) { return Contains(config.log.statistics, word); }),
              words.end());
  return words;
}

std::vector<std::string> KeptInTheMean(const PrecisionConfig& precision) {
  std::vector<std::string> tensors;
  if (IsStochastic(precision.masters.rounding)) tensors.insert(tensors.end(), {"update", "master"});
  if (IsStochastic(precision.accumulated_gradients.rounding)) tensors.emplace_back("accumulated");
  if (IsStochastic(precision.optimizer_state.rounding)) tensors.emplace_back("state");
  return tensors;
}

// --- Schedules of precision ---

namespace {

// What an entry gives replaces what was there; what it leaves unset stays.
void Overlay(const RoleFormatsConfig& given, RoleFormatsConfig& roles) {
  if (given.activations) roles.activations = given.activations;
  if (given.weights) roles.weights = given.weights;
  if (given.gradients) roles.gradients = given.gradients;
  if (given.weight_gradients) roles.weight_gradients = given.weight_gradients;
}

void Overlay(const OperandsConfig& given, OperandsConfig& operands) {
  for (std::size_t i = 0; i < kOperands; ++i)
    if (given.by_operand[i]) operands.by_operand[i] = given.by_operand[i];
  for (std::size_t i = 0; i < kAttentionTensors; ++i)
    if (given.attention[i]) operands.attention[i] = given.attention[i];
  if (given.tensor_scaling) operands.tensor_scaling = given.tensor_scaling;
  if (given.hadamard) operands.hadamard = given.hadamard;
  if (given.spared) operands.spared = given.spared;
}

void Overlay(const AccumulatesConfig& given, AccumulatesConfig& accumulate) {
  for (std::size_t i = 0; i < given.by_matmul.size(); ++i)
    if (given.by_matmul[i]) accumulate.by_matmul[i] = given.by_matmul[i];
  if (given.spared) accumulate.spared = given.spared;
}

// Layers are appended, because the last match wins. A recipe replaces the operands: only what the
// entry gives in addition to it counts, and SwitchSection has already merged the recipe into that.
void Apply(const PrecisionSwitchConfig& change, PrecisionConfig& precision) {
  if (change.format) precision.format = *change.format;
  Overlay(change, precision);
  if (change.rounding) precision.rounding = *change.rounding;
  precision.layers.insert(precision.layers.end(), change.layers.begin(), change.layers.end());
  if (change.recipe) {
    precision.recipe = *change.recipe;
    precision.operands = change.operands;
  } else {
    Overlay(change.operands, precision.operands);
  }
  Overlay(change.accumulate, precision.accumulate);
}

}  // namespace

PrecisionConfig PrecisionAt(const PrecisionConfig& precision, std::int64_t step) {
  PrecisionConfig at = precision;
  at.schedule.clear();
  for (const PrecisionSwitchConfig& change : precision.schedule)
    if (change.from_step <= step) Apply(change, at);
  return at;
}

// Entries rise by from_step (CheckPrecisionSchedule), so the first one after `step` ends the
// stretch.
std::int64_t LastStepAsAt(const PrecisionConfig& precision, std::int64_t step) {
  for (const PrecisionSwitchConfig& change : precision.schedule)
    if (change.from_step > step) return change.from_step - 1;
  return std::numeric_limits<std::int64_t>::max();
}

}  // namespace ada::config
