// The section `precision` as structs: formats of tensors, of what products take and of the update,
// and how sums are made (config.h).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/update.h"
#include "error.h"
#include "io/tensor_names.h"
#include "number/blocks/block_format.h"
#include "number/number_format.h"
#include "number/table_grid.h"
#include "scaling/rules/accumulator.h"
#include "scaling/rules/sum_scale.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::config {

// Formats by role; unset: as set one level up (for a layer's entry `precision`, then `format`). The
// four roles are a tensor's roles in its layer: activations are inputs and outputs, weights the
// rounded copies that are multiplied, gradients dx and dy, and weight_gradients dw.
struct RoleFormatsConfig {
  std::optional<NumberFormat> activations, weights, gradients, weight_gradients;
};
// What attention multiplies its probabilities, or gradients of scores, as.
enum class WithinAttention { kRounded, kFp32 };
// kNearest is the format's own: ties to even, in HiFloat8 away from zero. kStochastic rounds up
// with a probability that is the share of the gap, so that the mean is right; evaluations round to
// nearest all the same. The others are those of IEEE P3109, kStochasticA and on by some random
// bits.
enum class RoundingKind {
  kNearest,
  kStochastic,
  kNearestEven,
  kNearestAway,
  kTowardZero,
  kTowardPositive,
  kTowardNegative,
  kTowardOdd,
  kStochasticA,
  kStochasticB,
  kStochasticC
};
inline bool DrawsSomeBits(RoundingKind kind) { return kind >= RoundingKind::kStochasticA; }
inline bool IsStochastic(RoundingKind kind) {
  return kind == RoundingKind::kStochastic || DrawsSomeBits(kind);
}
// What happens to a value beyond the largest one of its format: what the format itself specifies
// (inf, NaN or the largest value), or saturation to the largest value, kSaturateFinite of finite
// values alone. kDefault saturates only tensors with a per-tensor scale.
enum class OverflowKind { kDefault, kFormat, kSaturate, kSaturateFinite };
// By what a format is rounded beside its own saturation (number/table_grid.h).
inline TableModes ModesOf(RoundingKind rounding, OverflowKind overflow, int random_bits) {
  TableModes modes;
  if (rounding >= RoundingKind::kNearestEven)
    modes.rounding = static_cast<TableRounding>(static_cast<int>(rounding) - 1);
  if (overflow == OverflowKind::kSaturateFinite) modes.overflow = TableOverflow::kSaturateFinite;
  modes.random_bits = random_bits;
  return modes;
}
// `precision.tensor_scaling` and that of operands: the rule by which the scale of one tensor
// follows from magnitudes (scaling/rules/tensor_scale.h), and whether there is one.
struct TensorScalingConfig : scaling::TensorScaleRule {
  // Only kDelayed is for tensors that are stored; kRow is one scale for each row along the sum,
  // kAdaptive for the scale that a tensor of blocks has beside theirs.
  // kPredicted is for weights; other operands then have kCurrent.
  enum class Kind { kNone, kCurrent, kDelayed, kRow, kStatic, kAdaptive, kPredicted };
  Kind kind = Kind::kNone;
  scaling::BlockRangeRule adaptive;
  std::int64_t interval = 500;  // of kPredicted: steps from one measurement to the next
  struct StaticScales {
    double x = 1, w = 1, dy = 1;  // by which values are multiplied before their rounding
    double q = 1, k = 1, v = 1, p = 1, ds = 1;  // the same in attention
  } values;
  bool lacks_kind = false;  // none was written; only a recipe gives one
};
// How matmuls read one operand: rounded once more, or (`format` unset) as it is stored.
struct OperandConfig {
  std::optional<AnyFormat> format;
  RoundingKind rounding = RoundingKind::kNearest;
  int random_bits = 8;      // of stochastic_a, _b and _c
  bool as_forward = false;  // of dx.w and dw.x: the very values that the forward product took
  // Unset: as OperandsConfig::tensor_scaling and PrecisionConfig::overflow say. All but the kind of
  // a scale is as the former says.
  std::optional<TensorScalingConfig::Kind> tensor_scaling = {};
  std::optional<OverflowKind> overflow = {};
};
// A Hadamard transform of both operands of products (backend/hadamard.h).
struct HadamardConfig {
  std::vector<std::string> products = {"dw"};
  int size = 16;
  enum class Signs { kFixed, kRandom, kListed } signs = Signs::kFixed;
  std::vector<int> listed = {};  // `size` times 1 or -1
};
// How many layers with weights, at the start and at the end of the network, have operands that are
// used as they are stored.
struct SparedConfig {
  int first = 0, last = 0;
};
// How the sums of one product are made: as an accumulator makes them, or (`rule` unset) in fp32.
struct AccumulateConfig {
  std::optional<scaling::Accumulator> rule;
};
// `precision.accumulate`; unset: as set one level up, by default in fp32.
struct AccumulatesConfig {
  std::array<std::optional<AccumulateConfig>, scaling::kLayerMatmuls> by_matmul;  // by LayerMatmul
  // Those of the Newton-Schulz iteration of muon; it and `spared` stand in `precision` alone.
  std::optional<AccumulateConfig> newton_schulz;
  std::optional<SparedConfig> spared;  // unset: as of operands
  bool given() const;
};
// `precision.operands`; unset: as set one level up, by default as stored.
struct OperandsConfig {
  std::array<std::optional<OperandConfig>, kOperands> by_operand;  // by Operand
  // By AttentionTensor, in both of its products.
  std::array<std::optional<OperandConfig>, kAttentionTensors> attention;
  std::optional<TensorScalingConfig> tensor_scaling;
  std::optional<HadamardConfig> hadamard;
  std::optional<SparedConfig> spared;  // only in `precision`
  bool given() const;
};
// Where `precision.operands` start from.
enum class PrecisionRecipe {
  kNone,
  kTeFp8Current,
  kTeFp8Delayed,
  kTeMxfp8,
  kTorchaoMxfp8,
  kTeNvfp4,
  kNvfp4Pretraining,
  kDeepSeekV3,
  kMxfp4Hadamard,
  kTorchaoFp8Tensorwise,
  kTorchaoFp8Rowwise,
  kTorchaoFp8RowwiseGwHp,
  kTorchaoInt8,
  kTorchaoNvfp4,
  kModdedNanogptHead,
};
// `precision.layers`: last match wins, key by key; a role's key beats `format` of the same entry.
struct LayerPrecisionConfig : RoleFormatsConfig {
  std::string match;
  std::optional<NumberFormat> format;  // of activations, weights and gradients
  std::optional<WithinAttention> probabilities, score_gradients;
  std::optional<PrecisionRecipe> recipe;  // already filled into `operands`
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  Location where;
};
// How a tensor of the update is kept between steps.
struct StorageFormatConfig {
  NumberFormat format = kFp32;
  RoundingKind rounding = RoundingKind::kNearest;
};
// The section `precision.accumulated_gradients`.
struct AccumulatedGradientsConfig : StorageFormatConfig {
  enum class Scaling { kNone, kFp8Lm } scaling = Scaling::kNone;
  scaling::SumScaleRule rule;
  bool scales() const { return scaling != Scaling::kNone; }
};
// The section `precision.masters`.
struct MastersConfig : StorageFormatConfig {
  backend::UpdateRule::Compensation compensation = backend::UpdateRule::Compensation::kNone;
  std::optional<backend::UpdateRule::Arithmetic> arithmetic;  // unset: ArithmeticOf
};
// The section `precision.optimizer_state`. A layout is another program's way to keep the states; a
// format of one state beats `format`.
struct OptimizerStateConfig : StorageFormatConfig {
  std::string layout;  // empty: none
  std::optional<NumberFormat> exp_avg, exp_avg_sq, momentum;
  backend::StateStorage::Scaling scaling = backend::StateStorage::Scaling::kNone;
  std::int64_t block = 256;
  enum class Map { kLinear, kDynamic } map = Map::kLinear;
  // Whether all states are fp32.
  bool plain() const {
    return format == kFp32 && layout.empty() && !exp_avg && !exp_avg_sq && !momentum;
  }
};
enum class PrecisionPreset { kNone, kAutocast, kAutocastCpu };
// One entry of `precision.schedule`: what is different from a step on; unset: as before.
// PrecisionAt applies the entries in their order, so an entry may rely on what an earlier one set.
struct PrecisionSwitchConfig : RoleFormatsConfig {
  std::int64_t from_step = 0;
  std::optional<NumberFormat> format;
  std::vector<LayerPrecisionConfig> layers;  // follow those before
  std::optional<RoundingKind> rounding;
  std::optional<PrecisionRecipe> recipe;  // then `operands` replace those before as a whole
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  Location where;
};
// The section `precision`. graph/network/precision.h resolves it layer by layer; until then it
// holds what was written, with a recipe's operands already filled in.
struct PrecisionConfig : RoleFormatsConfig {
  // The preset decides formats by the kind of a layer; a recipe decides operands. They are
  // independent.
  PrecisionPreset preset = PrecisionPreset::kNone;
  PrecisionRecipe recipe = PrecisionRecipe::kNone;
  // The roles activations, weights and gradients take this format unless they have one.
  NumberFormat format = kFp32;  // weight_gradients: fp32 unless set
  std::vector<LayerPrecisionConfig> layers;
  RoundingKind rounding = RoundingKind::kNearest;
  int random_bits = 8;  // of stochastic_a, _b and _c
  TensorScalingConfig tensor_scaling;
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  OverflowKind overflow = OverflowKind::kDefault;
  MastersConfig masters;
  OptimizerStateConfig optimizer_state;
  AccumulatedGradientsConfig accumulated_gradients;  // fp32: as ops add them up
  std::vector<PrecisionSwitchConfig> schedule;       // by rising from_step
  // Whether the section, one of its layers or of its switches says how sums are made.
  bool accumulates() const;
};

}  // namespace ada::config
