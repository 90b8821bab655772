// Convolution and linear layers as ops:
//
//   forward:   x, w --product--> sums --bias, round, count--> y
//   backward:  x, dy --product--> sums --1 / S, round, count--> dw
//              dy --product, w--> sums --alpha, round, count--> dx
//              (the authors' program:  dy --times alpha, round--> product --round, count--> dx)
//
// Sums are fp32 in scratch memory, or in the output itself where that is fp32; where nothing is
// counted a plan may round them itself. Kernels read alpha and S where the rule left them.
#include "backend/cuda/product_op.h"

#include <map>
#include <utility>

#include "backend/cuda/alpha_rule.h"
#include "backend/cuda/kernels/products.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/notes.h"
#include "backend/cuda/planned_product.h"
#include "backend/cuda/weight_copies.h"
#include "backend/cuda/weight_gradient.h"
#include "core/error.h"

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

// Whether a product may round to this tensor itself: nothing is noted, and storing is all there is.
bool RoundsPlainly(const Tensor& tensor, const RoundingStyle& style) {
  const bool native = tensor.format == kFp16 || tensor.format == kBf16;
  return native && tensor.storage == StorageFor(tensor.format) && !style.stochastic &&
         style.scaler == nullptr;
}

class ProductOp final : public Op {
 public:
  ProductOp(const Context& context, const ProductSpec& spec, const ProductGeometry& geometry);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;
  void RefreshWeights(const Pass& pass) override { weights_.Refresh(pass); }

 private:
  struct Plans {
    PlannedProduct forward, data, weights;
  };
  const Plans& PlansFor(int rows);
  Plans MakePlans(int rows);
  std::vector<ProductRequest> Requests(ProductKind kind, int rows) const;
  void ReserveScratch(const Plans& plans) const;
  std::size_t ScaledBytes() const;

  void DataGradient(const Pass& pass, const PlannedProduct& product);

  Context context_;
  ProductSpec spec_;
  ProductGeometry geometry_;
  bool alpha_first_;  // dy is multiplied, not dx
  TensorMoments* w_moments_;
  WeightCopies weights_;
  WeightGradient gradient_;
  Notes y_notes_, dx_notes_;
  std::unique_ptr<AlphaRule> rule_;  // null where dx is empty
  std::map<int, Plans> plans_;       // by images
};

// The authors multiply dy, which rounds. exact_range is not theirs: it looks at dx before alpha.
bool AlphaComesFirst(const ProductSpec& spec, const Context& context) {
  if (!spec.dx) return false;
  const scaling::LayerRule& rule = context.Host(spec.scaler)->rule;
  return rule.reference && rule.method != scaling::LayerMethod::kExactRange;
}
bool WantsMoments(const ProductSpec& spec, const Context& context) {
  return spec.dx && scaling::MayNeedMoments(context.Host(spec.scaler)->rule);
}

ProductOp::ProductOp(const Context& context, const ProductSpec& spec,
                     const ProductGeometry& geometry)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      alpha_first_(AlphaComesFirst(spec, context)),
      w_moments_(WantsMoments(spec, context) ? context.Allocate<TensorMoments>(1) : nullptr),
      weights_(context, spec, w_moments_),
      gradient_(context, spec),
      y_notes_(context, spec.y, spec.y_style, spec.y_stats),
      dx_notes_(context, spec.dx) {
  if (spec.dx) {
    ADA_CHECK(spec.scaler != nullptr);
    const std::int64_t out = spec.w.shape.n;
    const Piece rows{const_cast<float*>(weights_.plain()), Storage::kF32};
    rule_ =
        std::make_unique<AlphaRule>(context, spec.scaler, spec.dy, spec.dx,
                                    RuleWeights{w_moments_, rows, out, spec.w.shape.numel() / out});
  }
  PlansFor(static_cast<int>(spec.x.shape.n));
  weights_.Seal();
}

std::vector<ProductRequest> ProductOp::Requests(ProductKind kind, int rows) const {
  const NumberFormat x = ReadableFormat(spec_.x), dy = ReadableFormat(spec_.dy.tensor);
  const NumberFormat w = ReadableFormat(spec_.w_format, weights_.storage());
  if (kind == ProductKind::kWeights)
    return RequestsFor(kind, geometry_, rows, OperandsOf(x, dy), false);
  const bool forward = kind == ProductKind::kForward;
  const Storage operands = OperandsOf(forward ? x : dy, w);
  bool rounded = false;
  if (forward) {
    rounded = !spec_.b && spec_.y_stats == nullptr && spec_.y.storage == operands &&
              RoundsPlainly(spec_.y, spec_.y_style);
  } else {
    const bool tail = context_.Host(spec_.scaler)->rule.method == scaling::LayerMethod::kExactRange;
    rounded = !tail && !alpha_first_ && spec_.dx.stats == nullptr && spec_.dx.moments == nullptr &&
              spec_.dx.tensor.storage == operands && RoundsPlainly(spec_.dx.tensor, spec_.dx.style);
  }
  return RequestsFor(kind, geometry_, rows, operands, rounded);
}

ProductOp::Plans ProductOp::MakePlans(int rows) {
  const auto plan = [&](ProductKind kind) {
    return PlannedProduct(context_, spec_.layer, Requests(kind, rows));
  };
  Plans plans;
  plans.forward = plan(ProductKind::kForward);
  weights_.Packed(plans.forward.request().operands);
  if (spec_.dy) plans.weights = plan(ProductKind::kWeights);
  if (!spec_.dx) return plans;
  plans.data = plan(ProductKind::kData);
  weights_.Packed(plans.data.request().operands);
  return plans;
}

const ProductOp::Plans& ProductOp::PlansFor(int rows) {
  const auto found = plans_.find(rows);
  if (found != plans_.end()) return found->second;
  Plans& made = plans_[rows] = MakePlans(rows);
  ReserveScratch(made);
  return made;
}

// alpha * dy, where the authors' program makes it.
std::size_t ProductOp::ScaledBytes() const {
  return alpha_first_ ? Aligned(spec_.dy.tensor.bytes()) : 0;
}

void ProductOp::ReserveScratch(const Plans& plans) const {
  const auto wide = [](const Tensor& tensor) { return tensor.storage == Storage::kF32; };
  const auto reserve = [&](const PlannedProduct& product, Storage first, Storage second, bool apart,
                           std::size_t more) {
    context_.scratch.Reserve(product.scratch_bytes(first, second, apart) + more);
  };
  reserve(plans.forward, spec_.x.storage, plans.forward.request().operands, !wide(spec_.y), 0);
  if (!spec_.dy) return;
  const Storage dy = spec_.dy.tensor.storage;
  reserve(plans.weights, spec_.x.storage, dy, true, 0);
  if (spec_.b) context_.scratch.Reserve(gradient_.scratch_bytes());
  if (spec_.dx)
    reserve(plans.data, dy, plans.data.request().operands, !wide(spec_.dx.tensor), ScaledBytes());
}

void ProductOp::Forward(const Pass& pass) {
  const PlannedProduct& product = PlansFor(pass.rows).forward;
  const Piece y = PieceOf(spec_.y);
  const float* sums =
      product.Run(context_, PieceOf(spec_.x), weights_.Packed(product.request().operands), y,
                  nullptr, context_.scratch.data());
  if (sums == nullptr) return;
  const float* bias = spec_.b ? spec_.b.f32() : nullptr;
  if (bias == nullptr)
    y_notes_.Round(pass, y, ScaledSum{sums, nullptr});
  else
    y_notes_.Round(pass, y, BiasedSum{sums, bias, spec_.y.shape.c});
}

void ProductOp::Backward(const Pass& pass) {
  const Plans& plans = PlansFor(pass.rows);
  if (rule_) rule_->Decide(pass);
  gradient_.Store(pass, plans.weights.Run(context_, PieceOf(spec_.x), PieceOf(spec_.dy.tensor), {},
                                          nullptr, context_.scratch.data()));
  if (spec_.b) gradient_.StoreBias(pass, context_.scratch.data());
  if (rule_) DataGradient(pass, plans.data);
}

void ProductOp::DataGradient(const Pass& pass, const PlannedProduct& product) {
  const float* alpha = rule_->alpha();
  Piece dy = PieceOf(spec_.dy.tensor);
  const Piece dx = PieceOf(spec_.dx.tensor);
  std::byte* scratch = context_.scratch.data();
  if (alpha_first_) {
    const Piece scaled{scratch, dy.storage};
    scratch += ScaledBytes();
    ForEach(context_.stream, pass.rows * spec_.y.shape.per_image(),
            ScaleGradient{dy, scaled, alpha, GridOf(spec_.dy.tensor.format)});
    dy = scaled;
  }
  const float* sums =
      product.Run(context_, dy, weights_.Packed(product.request().operands), dx, alpha, scratch);
  if (sums == nullptr) return;
  const Piece gradient{const_cast<float*>(sums), Storage::kF32};
  rule_->Observe(gradient, pass.rows * spec_.x.shape.per_image());
  dx_notes_.Round(pass, dx, ScaledSum{sums, alpha_first_ ? nullptr : alpha});
}

template <class Spec>
std::unique_ptr<Op> MakeProductOp(const Context& context, const Spec& spec) {
  if (spec.deferred) return nullptr;
  return std::make_unique<ProductOp>(context, spec, GeometryOf(spec));
}

}  // namespace

std::unique_ptr<Op> MakeConv2dOp(const Context& context, const Conv2dSpec& spec) {
  return MakeProductOp(context, spec);
}
std::unique_ptr<Op> MakeLinearOp(const Context& context, const LinearSpec& spec) {
  return MakeProductOp(context, spec);
}

}  // namespace ada::backend::cuda
