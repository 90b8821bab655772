// See product_plans.h.
#include "backend/cuda/products/product_plans.h"

#include <utility>

#include "backend/cuda/beside.h"
#include "backend/decisions.h"

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
  return tensor.storage == operands && TellsLargest(tensor, style);
}

}  // namespace

ProductPlans::ProductPlans(const Context& context, const ProductSpec& spec,
                           const ProductGeometry& geometry, bool transposed, WeightCopies& weights,
                           bool alpha_first)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      transposed_(transposed),
      weights_(weights),
      alpha_first_(alpha_first) {
  const int rows = static_cast<int>(spec.x.shape.n);
  For(ProductKind::kForward, rows, true);
  if (spec.dy) For(ProductKind::kWeights, rows);
  if (spec.dx) For(ProductKind::kData, rows, true);
}

const PlannedProduct& ProductPlans::For(ProductKind kind, int rows, bool rounded) {
  Pair& pair = plans_[{kind, rows}];
  if (!pair.plain) pair.plain = Make(kind, rows, false);
  if (rounded || !pair.plain.rounded()) return pair.plain;
  if (!pair.sums) pair.sums = Make(kind, rows, true);
  return pair.sums;
}

ProductKind ProductPlans::AskedFor(ProductKind kind) const {
  if (!transposed_ || kind == ProductKind::kWeights) return kind;
  return kind == ProductKind::kForward ? ProductKind::kData : ProductKind::kForward;
}

PlanOutput ProductPlans::OutputOf(ProductKind kind, Storage operands) const {
  if (kind == ProductKind::kForward)
    return spec_.b || !RoundsPlainly(spec_.y, spec_.y_style, operands) ? PlanOutput::kSums
                                                                       : PlanOutput::kRounded;
  if (kind == ProductKind::kWeights) return PlanOutput::kSums;
  const Gradient& dx = spec_.dx;
  const scaling::LayerMethod method = context_.Host(spec_.scaler)->rule.method;
  if (method == scaling::LayerMethod::kExactRange || alpha_first_ || dx.moments != nullptr ||
      !RoundsPlainly(dx.tensor, dx.style, operands))
    return PlanOutput::kSums;
  // Without a rule of its own alpha is 1.
  return method == scaling::LayerMethod::kPass ? PlanOutput::kRounded
                                               : PlanOutput::kScaledAndRounded;
}

// fp8 needs 16 bits; in fp32 lie those with a scale of their own.
ProductPlans::Coded ProductPlans::CodedOf(const Tensor& tensor,
                                          const scaling::TensorScaler* own_scale) {
  return {Fp8Of(tensor.format), tensor.storage != Storage::kF32 || own_scale != nullptr, own_scale};
}

// alpha * dy is rounded without dy's scale.
ProductPlans::Coded ProductPlans::CodedDy(ProductKind kind) const {
  const bool plain = kind == ProductKind::kWeights || !alpha_first_;
  return CodedOf(spec_.dy.tensor, plain ? spec_.dy.style.own_scale : nullptr);
}

std::array<ProductPlans::Coded, 2> ProductPlans::CodedOperands(ProductKind kind) const {
  if (!context_.options.fp8_hardware) return {};
  const Coded x = CodedOf(spec_.x, spec_.x_own_scale), dy = CodedDy(kind),
              w{Fp8Of(spec_.w_format), true, spec_.w_style.own_scale};
  std::array<Coded, 2> both = {kind == ProductKind::kData ? dy : x,
                               kind == ProductKind::kWeights ? dy : w};
  if (transposed_ && kind == ProductKind::kWeights) std::swap(both[0], both[1]);
  if (both[0].format == Fp8::kNone || both[1].format == Fp8::kNone) return {};
  if (both[0].known && both[1].known) return both;
  context_.remarks.Diagnose("layer " + spec_.layer + ": the " + NameOf(kind) +
                            " of fp8 operands is emulated: the scale of one of them is not known");
  return {};
}

PlannedProduct ProductPlans::Make(ProductKind kind, int rows, bool sums) const {
  const NumberFormat x = ReadableFormat(spec_.x), dy = ReadableFormat(spec_.dy.tensor);
  const NumberFormat w = ReadableFormat(spec_.w_format, weights_.storage());
  Storage operands = kind == ProductKind::kForward ? OperandsOf(x, w)
                     : kind == ProductKind::kData  ? OperandsOf(dy, w)
                                                   : OperandsOf(x, dy);
  const std::array<Coded, 2> coded = CodedOperands(kind);
  // What a library does not do on 8-bit codes it does exactly on fp16, which holds them.
  if (coded[0].format != Fp8::kNone && coded[0].own_scale == nullptr &&
      coded[1].own_scale == nullptr)
    operands = Storage::kF16;
  const bool rounds = !sums && context_.stream.switches().round;
  const PlanOutput output = rounds ? OutputOf(kind, operands) : PlanOutput::kSums;
  const auto scale = [](const Coded& c) {
    return c.own_scale == nullptr ? nullptr : &c.own_scale->scale;
  };
  PlannedProduct product(ContextOf(kind), spec_.layer,
                         RequestsFor(AskedFor(kind), geometry_, rows, operands, output,
                                     {coded[0].format, coded[1].format}),
                         {scale(coded[0]), scale(coded[1])});
  if (kind != ProductKind::kWeights) weights_.Packed(product.request().operands);
  ReserveScratch(kind, product);
  return product;
}

// Weight gradients are made beside the stream.
const Context& ProductPlans::ContextOf(ProductKind kind) const {
  return kind == ProductKind::kWeights ? context_.beside.context() : context_;
}

std::size_t ProductPlans::scaled_bytes() const {
  return alpha_first_ ? Aligned(spec_.dy.tensor.bytes()) : 0;
}

void ProductPlans::ReserveScratch(ProductKind kind, const PlannedProduct& product) const {
  const ProductRequest& request = product.request();
  const Storage x = spec_.x.storage, dy = spec_.dy.tensor.storage;
  const auto reserve = [&](Storage first, Storage second, bool apart, std::size_t more) {
    ContextOf(kind).scratch.Reserve(product.scratch_bytes(first, second, apart) + more);
  };
  const auto sums = [&](const Tensor& tensor, const TensorStats* stats) {
    return tensor.storage != Storage::kF32 && (!product.rounded() || stats != nullptr);
  };
  switch (kind) {
    case ProductKind::kForward:
      return reserve(x, request.operands, sums(spec_.y, spec_.y_stats), 0);
    case ProductKind::kWeights:
      return transposed_ ? reserve(dy, x, true, 0) : reserve(x, dy, true, 0);
    case ProductKind::kData:
      return reserve(dy, request.operands, sums(spec_.dx.tensor, spec_.dx.stats), scaled_bytes());
  }
}

}  // namespace ada::backend::cuda
