// See operand_places.h.
#include "backend/cuda/matmul/operand_places.h"

#include <algorithm>

#include "error.h"

namespace ada::backend::cuda {
namespace {

// Which storages of 16 bits hold every value of an operand.
struct Holders {
  bool bf16 = false, fp16 = false;
};

Holders Of(Storage storage) { return {storage == Storage::kBF16, storage == Storage::kF16}; }

Holders Of(const NumberFormat& format) {
  const auto holds = [&](const NumberFormat& wide) {
    return wide.mantissa_bits >= format.mantissa_bits && wide.largest() >= format.largest() &&
           wide.smallest_subnormal() <= format.smallest_subnormal();
  };
  return {holds(kBf16), holds(kFp16)};
}

Storage StoredAs(const MatmulSpec& spec, Operand operand) {
  if (IsWeight(operand))
    return spec.w_style.per_tensor_scale != nullptr ? Storage::kF32 : StorageFor(spec.w_format);
  const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
  return is_x ? spec.x.storage : spec.dy.tensor.storage;
}

// A value that was divided by a per-tensor scale may be any fp32 number, which nothing of 16 bits
// holds.
Holders HoldersOf(const MatmulSpec& spec, Operand operand) {
  const OperandRounding& rounding = spec.operands[IndexOf(operand)];
  const Storage stored = StoredAs(spec, operand);
  if (!rounding.rounds) return Of(stored);
  if (rounding.style.per_tensor_scale != nullptr) return {};
  if (!rounding.block) return Of(rounding.format);
  // A transform of fp16 makes values of fp32.
  const bool widened = rounding.hadamard && stored == Storage::kF16;
  return {FitsBf16(*rounding.block, stored != Storage::kF32 && !widened), false};
}

}  // namespace

bool Rounds(const MatmulSpec& spec, MatmulKind kind) {
  const std::array<Operand, 2> both = BothOperandsOf(kind);
  return std::any_of(both.begin(), both.end(),
                     [&](Operand operand) { return spec.operands[IndexOf(operand)].rounds; });
}

// Both operands of a product have one storage, as libraries want it.
Storage CarrierOf(const MatmulSpec& spec, MatmulKind kind) {
  const std::array<Operand, 2> both = BothOperandsOf(kind);
  const Holders first = HoldersOf(spec, both[0]), second = HoldersOf(spec, both[1]);
  return first.bf16 && second.bf16   ? Storage::kBF16
         : first.fp16 && second.fp16 ? Storage::kF16
                                     : Storage::kF32;
}

void RefuseScales(const OperandRounding& operand) {
  if (operand.adaptive)
    throw ConfigError(
        "precision.operands.tensor_scaling: kind adaptive is not there on GPUs; leave it out, or "
        "device: cpu");
  if (!operand.row_scaled) return;
  throw ConfigError(
      "precision.operands.tensor_scaling: kind row is not there on GPUs; use kind current, or "
      "device: cpu");
}

void RefuseTransform(const OperandRounding& operand, Operand which) {
  const HadamardRule& rule = operand.hadamard;
  const bool is_dw = which == Operand::kDwX || which == Operand::kDwDy;
  if (!rule || (is_dw && rule.size == kHadamardSize && rule.listed.empty())) return;
  throw ConfigError(
      "precision.operands.hadamard: on GPUs there is a transform of dw alone, of size 16, with "
      "signs "
      "fixed or random; use that, or device: cpu");
}

}  // namespace ada::backend::cuda
