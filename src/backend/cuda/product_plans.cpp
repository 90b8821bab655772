// See product_plans.h.
#include "backend/cuda/product_plans.h"

namespace ada::backend::cuda {
namespace {

// In which storage products may read a tensor as it is stored: a 16-bit format in fp32 storage may
// have a scale of its own, and then its values are not the format's.
NumberFormat ReadableFormat(const NumberFormat& format, Storage storage) {
  return storage == Storage::kF32 ? kFp32 : format;
}
NumberFormat ReadableFormat(const Tensor& tensor) {
  return ReadableFormat(tensor.format, tensor.storage);
}

// Whether converting to the storage of `operands` is all that rounding to this tensor is. A format
// that saturates is not kFp16 or kBf16.
bool RoundsPlainly(const Tensor& tensor, const RoundingStyle& style, Storage operands) {
  const bool native = tensor.format == kFp16 || tensor.format == kBf16;
  return native && tensor.storage == StorageFor(tensor.format) && tensor.storage == operands &&
         !style.stochastic && style.scaler == nullptr;
}

}  // namespace

ProductPlans::ProductPlans(const Context& context, const ProductSpec& spec,
                           const ProductGeometry& geometry, WeightCopies& weights, bool alpha_first)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      weights_(weights),
      alpha_first_(alpha_first) {
  const int rows = static_cast<int>(spec.x.shape.n);
  For(ProductKind::kForward, rows, true);
  if (spec.dy) For(ProductKind::kWeights, rows);
  if (spec.dx) For(ProductKind::kData, rows, true);
}

const PlannedProduct& ProductPlans::For(ProductKind kind, int rows, bool largest) {
  Pair& pair = plans_[{kind, rows}];
  if (!pair.plain) pair.plain = Make(kind, rows, false);
  if (largest || !pair.plain.request().largest) return pair.plain;
  if (!pair.sums) pair.sums = Make(kind, rows, true);
  return pair.sums;
}

PlanOutput ProductPlans::OutputOf(ProductKind kind, Storage operands) const {
  const auto noted = [](const TensorStats* stats) {
    return stats == nullptr ? PlanOutput::kRounded : PlanOutput::kNoted;
  };
  if (kind == ProductKind::kForward)
    return spec_.b || !RoundsPlainly(spec_.y, spec_.y_style, operands) ? PlanOutput::kSums
                                                                       : noted(spec_.y_stats);
  if (kind == ProductKind::kWeights) return PlanOutput::kSums;
  const Gradient& dx = spec_.dx;
  const bool tail = context_.Host(spec_.scaler)->rule.method == scaling::LayerMethod::kExactRange;
  return tail || alpha_first_ || dx.moments != nullptr ||
                 !RoundsPlainly(dx.tensor, dx.style, operands)
             ? PlanOutput::kSums
             : noted(dx.stats);
}

PlannedProduct ProductPlans::Make(ProductKind kind, int rows, bool sums) const {
  const NumberFormat x = ReadableFormat(spec_.x), dy = ReadableFormat(spec_.dy.tensor);
  const NumberFormat w = ReadableFormat(spec_.w_format, weights_.storage());
  const Storage operands = kind == ProductKind::kForward ? OperandsOf(x, w)
                           : kind == ProductKind::kData  ? OperandsOf(dy, w)
                                                         : OperandsOf(x, dy);
  const PlanOutput output = sums ? PlanOutput::kSums : OutputOf(kind, operands);
  PlannedProduct product(context_, spec_.layer,
                         RequestsFor(kind, geometry_, rows, operands, output));
  if (kind != ProductKind::kWeights) weights_.Packed(product.request().operands);
  ReserveScratch(product);
  return product;
}

std::size_t ProductPlans::scaled_bytes() const {
  return alpha_first_ ? Aligned(spec_.dy.tensor.bytes()) : 0;
}

void ProductPlans::ReserveScratch(const PlannedProduct& product) const {
  const ProductRequest& request = product.request();
  const auto reserve = [&](Storage first, Storage second, bool apart, std::size_t more) {
    context_.scratch.Reserve(product.scratch_bytes(first, second, apart) + more);
  };
  const auto narrow = [](const Tensor& tensor) { return tensor.storage != Storage::kF32; };
  switch (request.kind) {
    case ProductKind::kForward:
      return reserve(spec_.x.storage, request.operands, narrow(spec_.y), 0);
    case ProductKind::kWeights:
      return reserve(spec_.x.storage, spec_.dy.tensor.storage, true, 0);
    case ProductKind::kData:
      return reserve(spec_.dy.tensor.storage, request.operands, narrow(spec_.dx.tensor),
                     scaled_bytes());
  }
}

}  // namespace ada::backend::cuda
