// Which of the tensors that log.statistics names a run rounds, so that what was not counted can be
// named.
#include <algorithm>

#include "config/derived.h"
#include "io/text.h"

namespace ada::config {
namespace {

bool IsNarrow(const std::optional<NumberFormat>& format) { return format && *format != kFp32; }

bool RoundsSome(const OperandsConfig& operands) {
  const auto rounds = [](const auto& operand) { return operand && operand->format; };
  return std::any_of(operands.by_operand.begin(), operands.by_operand.end(), rounds) ||
         std::any_of(operands.attention.begin(), operands.attention.end(), rounds);
}

// What is true of some layer of one stretch of the schedule.
struct RoundedRoles {
  bool activations = false, weights = false, gradients = false, weight_gradients = false,
       operands = false;

  void Add(const RoleFormatsConfig& roles, const std::optional<NumberFormat>& format) {
    activations = activations || IsNarrow(roles.activations ? roles.activations : format);
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

}  // namespace

std::vector<std::string> RoundedStatistics(const PrecisionConfig& precision) {
  RoundedRoles rounded;
  rounded.Add(PrecisionAt(precision, 1));
  for (const PrecisionSwitchConfig& change : precision.schedule)
    rounded.Add(PrecisionAt(precision, change.from_step));
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

}  // namespace ada::config
