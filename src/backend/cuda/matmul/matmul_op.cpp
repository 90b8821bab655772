// Convolution and linear layers as ops:
//
//   forward:   x, w --product--> sums --bias, round, count--> y
//   backward:  x, dy --product--> sums --1 / S, round, count--> dw
//              dy --product, w--> sums --alpha, round, count--> dx
// (of a transposed convolution the products are those of the convolution that it transposes, with
// x and dy in each other's places)
//              (the authors' program:  dy --times alpha, round--> product --round, count--> dx)
//
// Products take x, w and dy as they are stored, or copies that are rounded once more, each for its
// product (matmul_plans.h, weight_copies.h).
//
// Sums are fp32 in scratch memory, or in the output itself where that is fp32; where at most the
// largest magnitude is measured a plan may multiply by alpha and round them itself. It measures
// nothing: who reads the output next notes its largest magnitude, or a kernel of this op does, of
// the values as they are stored (backend/decisions.h). Kernels and plans read alpha and S where the
// rule left them. dw is made on the side stream, at the same time as dx and what follows it
// (side_stream.h).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/gradient_group.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/matmul/matmul_plans.h"
#include "backend/cuda/matmul/weight_copies.h"
#include "backend/cuda/rounding/alpha_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/rounding/row_chain.h"
#include "backend/cuda/side_stream.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// Turns the sums of a weight gradient into dw and db: in PyTorch's order, unscaled, rounded if they
// have a format of their own. Its context is the side stream's, where all its launches go.
class WeightGradient {
 public:
  // Without spec.dy nothing may be called.
  WeightGradient(const Context& context, const MatmulSpec& spec);
  // dw = round(sums / S); of several micro-batches each sum is rounded. sums: packed, fp32, with
  // this many input channels after those of w. Neither rounded nor counted where pass.part.
  // db, where there is a bias: sum(dy) / S in fp32; the authors' program rounds it where dw is.
  void Store(const Pass& pass, const float* sums, std::int64_t added_channels) const;
  // Whether this pass may leave that to one launch with other layers (side_stream.h): of small
  // weights, where nothing but dw's largest magnitude is measured. Sums go to their own memory
  // then, with no more channels than w has, and are there until Leave's launch.
  bool Leaves(const Pass& pass) const;
  TensorSpan own_sums() const { return {own_sums_, Storage::kF32}; }
  void Leave(const Pass& pass) const;
  // dw and db are the sums of all processes: what Store leaves out of parts of them.
  void Finish(const Pass& pass) const;

 private:
  // db from dy as it is stored: runs of rows in fp32, then the runs in double.
  using RunSums = ForEachKernel<SumRuns>;
  using Bias = ForEachKernel<UnscaledBias>;
  RunSums SumsOfRuns(const Pass& pass) const;
  Bias BiasOfRuns(const Pass& pass) const;
  UnscaledGradient Unscaled(const Pass& pass, const float* sums, std::int64_t added) const;
  // Whether one launch may make dw and db.
  bool AtOnce(const Pass& pass) const;

  Context context_;
  MatmulSpec spec_;
  RoundingStats stats_;
  std::int64_t run_ = 0;   // rows of dy that one thread adds up; depends only on the shape
  float* runs_ = nullptr;  // their sums, with db
  std::uint32_t* finished_ = nullptr;  // blocks, with db
  float* own_sums_ = nullptr;          // null: of weights that are not small
};

// Enough runs to fill a device, long enough to be few.
std::int64_t RowsInRun(const Shape& dy) {
  constexpr std::int64_t kThreads = 65536;
  return std::clamp<std::int64_t>(dy.numel() / kThreads, 16, 1024);
}
std::int64_t Runs(std::int64_t rows, std::int64_t run) { return (rows + run - 1) / run; }

}  // namespace

WeightGradient::WeightGradient(const Context& context, const MatmulSpec& spec)
    : context_(context),
      spec_(spec),
      stats_(RoundingStats::OfParameter(context, spec.dw_format, Storage::kF32,
                                        spec.w.shape.numel(), spec.dw_style, spec.dw_stats)),
      run_(RowsInRun(spec.y.shape)) {
  constexpr std::int64_t kSmall = 1 << 17;
  if (spec.dy && !spec.adds_dw && spec.w.shape.numel() <= kSmall)
    own_sums_ = context.Allocate<float>(spec.w.shape.numel());
  if (!spec.b || !spec.dy) return;
  const Shape& dy = spec.y.shape;
  runs_ = context.Allocate<float>(Runs(dy.n * dy.h * dy.w, run_) * dy.c);
  finished_ = context.AllocateZeroed<std::uint32_t>(1);
}

WeightGradient::RunSums WeightGradient::SumsOfRuns(const Pass& pass) const {
  const Shape& shape = spec_.y.shape;
  const std::int64_t rows = pass.rows * shape.h * shape.w;
  return {{SpanOf(spec_.dy.tensor), rows, shape.c, run_, runs_}, Runs(rows, run_) * shape.c};
}
WeightGradient::Bias WeightGradient::BiasOfRuns(const Pass& pass) const {
  const Shape& shape = spec_.y.shape;
  return {{runs_, Runs(pass.rows * shape.h * shape.w, run_), shape.c, spec_.dy.scale,
           spec_.db.f32(), pass.accumulate, spec_.reference && !pass.part, GridOf(spec_.dw_format)},
          shape.c};
}

UnscaledGradient WeightGradient::Unscaled(const Pass& pass, const float* sums,
                                          std::int64_t added) const {
  const Shape& w = spec_.w.shape;
  return {sums,
          {w.c, w.h * w.w, w.c + added},
          spec_.dy.scale,
          spec_.dw.f32(),
          pass.accumulate || spec_.adds_dw,
          spec_.reference && stats_.rounds() && !pass.part,
          GridOf(spec_.dw_format)};
}

// Where dw is not counted, and db has few channels, whose runs one block, the last of those that
// sum them, adds as fast as several.
bool WeightGradient::AtOnce(const Pass& pass) const {
  const CudaSwitches& switches = context_.stream.switches();
  const bool few = !spec_.b || BiasOfRuns(pass).Blocks() <= 2;
  return few && !pass.part && stats_.Level(pass) < StatsLevel::kCounts && switches.fused &&
         switches.last_block;
}

void WeightGradient::Store(const Pass& pass, const float* sums, std::int64_t added_channels) const {
  const UnscaledGradient gradient = Unscaled(pass, sums, added_channels);
  if (spec_.b && AtOnce(pass))
    return stats_.RoundWith(
        pass, SpanOf(spec_.dw), gradient, 0, [&](const auto& kernel, auto, int blocks) {
          using ToDw = std::decay_t<decltype(kernel)>;
          const RunSums runs = SumsOfRuns(pass);
          Launch(context_.stream,
                 FusedPair<ToDw, GradientToDb>{kernel, {runs, BiasOfRuns(pass), finished_}, blocks},
                 blocks + runs.Blocks());
        });
  if (pass.part)
    ForEach(context_.stream, spec_.w.shape.numel(), StoreUnscaled{gradient, spec_.dw.f32()});
  else
    stats_.Round(pass, SpanOf(spec_.dw), gradient);
  if (!spec_.b) return;
  const RunSums runs = SumsOfRuns(pass);
  Launch(context_.stream, runs, runs.Blocks());
  const Bias bias = BiasOfRuns(pass);
  Launch(context_.stream, bias, bias.Blocks());
}

bool WeightGradient::Leaves(const Pass& pass) const {
  return own_sums_ != nullptr && AtOnce(pass) && stats_.Level(pass) == StatsLevel::kLargest;
}

void WeightGradient::Leave(const Pass& pass) const {
  const Rounding how = stats_.For(pass);
  const FlatBlocks flat = FlatBlocksOf(how.values);
  GradientKernel kernel{
      {{how, how.values, flat.size}, Unscaled(pass, own_sums_, 0), SpanOf(spec_.dw)},
      {},
      flat.blocks};
  int blocks = flat.blocks;
  if (spec_.b) {
    const RunSums runs = SumsOfRuns(pass);
    kernel.second = {runs, BiasOfRuns(pass), finished_};
    blocks += runs.Blocks();
    context_.side_stream.Leave(RangeOf(spec_.dy.tensor));
  }
  context_.side_stream.group().Add(kernel, blocks);
}

// dw is rounded as in the authors' program, rounded, only counted, or left unchanged, depending on
// its format and the spec.
void WeightGradient::Finish(const Pass& pass) const {
  const TensorSpan dw = SpanOf(spec_.dw);
  const NumberGrid grid = GridOf(spec_.dw_format);
  if (stats_.rounds() && spec_.reference)
    stats_.Round(pass, dw, SumAsReference{spec_.dw.f32(), spec_.dy.scale, grid});
  else if (stats_.rounds())
    stats_.Round(pass, dw, StoredValues{dw});
  else if (stats_.wanted())
    stats_.Count(pass, dw);
  if (!spec_.b || !spec_.reference) return;
  ForEach(context_.stream, spec_.y.shape.c,
          RoundBiasSum{{spec_.db.f32(), spec_.dy.scale, grid}, spec_.db.f32()});
}

// --- The op ---

namespace {

// One for each conv2d, conv_transpose2d and linear layer. All calls only launch: whatever depends
// on values (alpha, S, whether a value is finite) is read on the device.
class MatmulOp final : public Op {
 public:
  // geometry: of the layer, or of the convolution that it transposes.
  MatmulOp(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
           const OperandPlaces& places);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;
  void RefreshWeights(const Pass& pass) override { weights_.Refresh(pass); }
  void FinishGradients(const Pass& pass) override {
    if (spec_.dy) context_.side_stream.Run({}, [&] { gradient_.Finish(pass); });
  }

 private:
  void WeightGradients(const Pass& pass, const PlannedMatmul& weights, bool leaves);
  void DataGradient(const Pass& pass);

  Context context_;
  MatmulSpec spec_;
  bool transposed_;
  bool alpha_first_;  // dy is multiplied, not dx
  TensorMoments* w_moments_;
  WeightCopies weights_;
  OperandCopies operands_;
  WeightGradient gradient_;
  RoundingStats y_stats_, dx_stats_;
  std::unique_ptr<AlphaRule> rule_;  // null where dx is empty
  MatmulPlans plans_;
};

// Whether a call's output may be rounded by a plan.
bool MayRound(const RoundingStats& stats, const Pass& pass) {
  return stats.Level(pass) <= StatsLevel::kLargest;
}

bool AlphaComesFirst(const MatmulSpec& spec, const Context& context) {
  return spec.dx && scaling::AlphaComesFirst(context.Host(spec.scaler)->rule);
}
bool WantsMoments(const MatmulSpec& spec, const Context& context) {
  return spec.dx && scaling::MayNeedMoments(context.Host(spec.scaler)->rule);
}

MatmulOp::MatmulOp(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
                   const OperandPlaces& places)
    : context_(context),
      spec_(spec),
      transposed_(places.transposed),
      alpha_first_(AlphaComesFirst(spec, context)),
      w_moments_(WantsMoments(spec, context) ? context.Allocate<TensorMoments>(1) : nullptr),
      weights_(context, places, spec, w_moments_),
      operands_{{context, places, spec, MatmulKind::kForward},
                {context, places, spec, MatmulKind::kData},
                {context.side_stream.context(), places, spec, MatmulKind::kWeights}},
      gradient_(context.side_stream.context(), spec),
      y_stats_(context, spec.y, spec.y_style, spec.y_stats),
      dx_stats_(context, spec.dx),
      plans_(context, spec, geometry, transposed_, weights_, operands_, alpha_first_) {
  if (spec.y_amax_deferred) y_stats_.DeferAmax();
  if (spec.dx) {
    ADA_CHECK(spec.scaler != nullptr);
    const Shape& w = spec.w.shape;
    RuleWeights seen{
        w_moments_, {const_cast<float*>(weights_.plain()), Storage::kF32}, w.n, w.per_image()};
    if (transposed_)
      seen.channels = spec.y.shape.c, seen.values = w.h * w.w, seen.group = w.c,
      seen.inputs = w.n * w.c / spec.y.shape.c;
    rule_ = std::make_unique<AlphaRule>(context, spec.scaler, spec.dy, spec.dx, seen);
  }
  if (context.link != nullptr) context.scratch.Reserve(operands_.weights.work_bytes());
  weights_.Seal();
}

// If there are no sums, the plan has rounded y itself, and at most its largest magnitude is still
// to be computed.
void MatmulOp::Forward(const Pass& pass) {
  const PlannedMatmul& matmul =
      plans_.For(MatmulKind::kForward, pass.rows, MayRound(y_stats_, pass));
  const TensorSpan y = SpanOf(spec_.y);
  std::byte* const scratch = context_.scratch.data();
  operands_.forward.JoinAmax(context_, pass);
  const TensorSpan x = operands_.forward.Make(pass, scratch)[0];
  const float* sums =
      matmul.Run(context_, x, weights_.Packed(matmul.request().operands, Operand::kForwardW), y,
                 nullptr, scratch + operands_.forward.carrier_bytes());
  if (sums == nullptr) return y_stats_.Count(pass, y);
  const float* bias = spec_.b ? spec_.b.f32() : nullptr;
  if (bias == nullptr) return y_stats_.Round(pass, y, ScaledSum{sums, nullptr});
  const BiasedSum value{sums, bias, spec_.y.shape.c};
  if (!context_.row_chain.Leave(pass, y_stats_, spec_.y, value)) y_stats_.Round(pass, y, value);
}

// The side stream registers the memory of x and dy: an op that overwrites one of them waits for it.
void MatmulOp::Backward(const Pass& pass) {
  operands_.weights.JoinAmax(context_, pass);
  const PlannedMatmul& weights = plans_.For(MatmulKind::kWeights, pass.rows);
  const bool leaves = weights.added_channels() == 0 && gradient_.Leaves(pass);
  context_.side_stream.Run(
      {RangeOf(spec_.x), RangeOf(spec_.dy.tensor)}, [&] { WeightGradients(pass, weights, leaves); },
      leaves);
  if (!rule_) return;
  rule_->Decide(pass);
  DataGradient(pass);
}

void MatmulOp::WeightGradients(const Pass& pass, const PlannedMatmul& weights, bool leaves) {
  const Context& context = context_.side_stream.context();
  std::byte* scratch = context.scratch.data();
  auto [first, second] = operands_.weights.Make(pass, scratch);
  if (transposed_) std::swap(first, second);
  const TensorSpan to = leaves ? gradient_.own_sums() : TensorSpan{};
  const float* const sums =
      weights.Run(context, first, second, to, nullptr, scratch + operands_.weights.carrier_bytes());
  if (leaves)
    gradient_.Leave(pass);
  else
    gradient_.Store(pass, sums, weights.added_channels());
}

// Scratch memory in order: the copy of dy, alpha * dy as in the authors' program, then the plan's
// memory.
void MatmulOp::DataGradient(const Pass& pass) {
  const PlannedMatmul& matmul = plans_.For(MatmulKind::kData, pass.rows, MayRound(dx_stats_, pass));
  const float* alpha = rule_->alpha();
  std::byte* scratch = context_.scratch.data();
  operands_.data.JoinAmax(context_, pass);
  TensorSpan dy = operands_.data.Make(pass, scratch)[0];
  scratch += operands_.data.carrier_bytes();
  const TensorSpan dx = SpanOf(spec_.dx.tensor);
  if (alpha_first_) {
    const TensorSpan scaled{scratch, dy.storage};
    scratch += plans_.scaled_bytes();
    ForEach(context_.stream, pass.rows * spec_.y.shape.per_image(),
            ScaleGradient{dy, scaled, alpha, GridOf(spec_.dy.tensor.format)});
    dy = scaled;
  }
  const float* sums = matmul.Run(
      context_, dy, weights_.Packed(matmul.request().operands, Operand::kDxW), dx, alpha, scratch);
  if (sums == nullptr) return dx_stats_.Count(pass, dx);
  rule_->Observe(ScaledSum{sums, nullptr}, pass.rows * spec_.x.shape.per_image());
  dx_stats_.Round(pass, dx, ScaledSum{sums, alpha_first_ ? nullptr : alpha});
}

// An input that is to be recomputed is declined; the graph then asks for the parts.
template <class Spec>
std::unique_ptr<Op> MakeMatmul(const Context& context, const Spec& spec) {
  if (spec.recomputed) return nullptr;
  return std::make_unique<MatmulOp>(context, spec, GeometryOf(spec), PlacesOf(spec));
}

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& context, const Conv2dSpec& spec) {
  return MakeMatmul(context, spec);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& context, const ConvTranspose2dSpec& spec) {
  return MakeMatmul(context, spec);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& context, const LinearSpec& spec) {
  return MakeMatmul(context, spec);
}

}  // namespace ada::backend::cuda
