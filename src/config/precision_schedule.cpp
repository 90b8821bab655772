// What `precision.schedule` makes of `precision` from a step on.
#include <limits>

#include "config/load.h"

namespace ada::config {
namespace {

void Overlay(const RoleFormatsConfig& given, RoleFormatsConfig& roles) {
  if (given.activations) roles.activations = given.activations;
  if (given.weights) roles.weights = given.weights;
  if (given.gradients) roles.gradients = given.gradients;
  if (given.weight_gradients) roles.weight_gradients = given.weight_gradients;
}

void Overlay(const OperandsConfig& given, OperandsConfig& operands) {
  for (std::size_t i = 0; i < kOperands; ++i)
    if (given.by_operand[i]) operands.by_operand[i] = given.by_operand[i];
  if (given.tensor_scaling) operands.tensor_scaling = given.tensor_scaling;
  if (given.hadamard) operands.hadamard = given.hadamard;
  if (given.spared) operands.spared = given.spared;
}

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
}

}  // namespace

PrecisionConfig PrecisionAt(const PrecisionConfig& precision, std::int64_t step) {
  PrecisionConfig at = precision;
  at.schedule.clear();
  for (const PrecisionSwitchConfig& change : precision.schedule)
    if (change.from_step <= step) Apply(change, at);
  return at;
}

std::int64_t LastStepAsAt(const PrecisionConfig& precision, std::int64_t step) {
  for (const PrecisionSwitchConfig& change : precision.schedule)
    if (change.from_step > step) return change.from_step - 1;
  return std::numeric_limits<std::int64_t>::max();
}

}  // namespace ada::config
