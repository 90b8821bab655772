// What `precision.schedule` makes of `precision` from a step on.
// A run asks for it for each stretch of steps with one precision (run/run.cpp); the result looks
// like a section without a schedule.
#include <limits>

#include "config/derived.h"

namespace ada::config {
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
  for (std::size_t i = 0; i < given.by_product.size(); ++i)
    if (given.by_product[i]) accumulate.by_product[i] = given.by_product[i];
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
