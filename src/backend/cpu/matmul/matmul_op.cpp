// The chunk loops of convolution and linear layers.
//
//   forward chunk:   x (or a batch norm of it, made here) --> products --> y
//   backward chunk:  dy, x --+--> partial dw (of the chunk's group)
//                            +--> dx --> sums of the batch norm that made x
//   (large linear layers:  slices of dw, each of the whole batch, beside the chunks of dx)
//   (the authors' program:  dy --times alpha, round--> products --round, count--> dx)
//
// Chunks that the kernels cannot compute fall back to fp32 after the others (matmul_gradient.cpp).
#include "backend/cpu/matmul/matmul_op.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/matmul/plan/accumulated_chunks.h"
#include "backend/cpu/matmul/plan/depthwise_chunks.h"
#include "backend/cpu/matmul/plan/kernel_chunks.h"
#include "backend/cpu/matmul/plan/onednn_chunks.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

bool AlphaComesFirst(const MatmulSpec& spec) {
  return spec.scaler != nullptr && scaling::AlphaComesFirst(spec.scaler->rule);
}
// Row blocks take several images at a time, and the kernels pass over all weights in every chunk:
// with many weights a chunk holds 32 images. But direct convolutions leave four chunks in a batch
// for threads to share; linear layers, whose partial gradients are large, do not.
int ChunkFor(const MatmulSpec& spec, const MatmulGeometry& geometry, const MatmulKernels* tiles) {
  const Shape &x = spec.x.shape, &y = spec.y.shape;
  const auto batch = static_cast<int>(x.n);
  int images = ChunkImages(x, y);
  if (tiles == nullptr) return std::min(images, batch);
  if (spec.w.shape.numel() > (1 << 20)) images = std::max(images, 32);
  const auto quarter = static_cast<int>(PowerOfTwoBelow(std::max(1, batch / 4)));
  if (!geometry.linear && !tiles->on_bf16_split())
    images = std::max({std::min(images, quarter), BlockImages(x), BlockImages(y)});
  return std::min(std::max(images, ImagesOfRowBlocks(*tiles, geometry, quarter)), batch);
}
bool WantsMoments(const MatmulSpec& spec) {
  return spec.scaler != nullptr && scaling::MayNeedMoments(spec.scaler->rule);
}

}  // namespace

MatmulOp::MatmulOp(const Context& context, const MatmulKernels* tiles, const MatmulSpec& spec,
                   MatmulSpec operand_spec, const MatmulGeometry& geometry)
    : context_(context),
      spec_(spec),
      operand_spec_(std::move(operand_spec)),
      geometry_(geometry),
      chunk_(ChunkFor(spec, geometry, tiles)),
      weights_(context, geometry, spec, WantsMoments(spec)),
      operands_(context, geometry, spec, operand_spec_),
      rounding_(context, spec),
      on_kernels_(tiles != nullptr),
      dw_stats_(RoundingStats::OfParameter(spec.dw_format, spec.w.shape.numel(), spec.dw_style,
                                           spec.dw_stats)) {
  if (spec.recomputed) recomputed_.emplace(context, spec.recomputed);
  if (recomputed_) own_bytes_ = WholeLines(recomputed_->chunk_bytes(chunk_));
  if (AlphaComesFirst(spec))
    own_bytes_ += WholeLines(static_cast<std::size_t>(chunk_ * spec.y.shape.per_image()) * 4);
  if (on_kernels_ && IsNarrow(geometry_))
    matmul_ = std::make_unique<DepthwiseChunks>(*tiles, context, operand_spec_, geometry_, weights_,
                                                rounding_, chunk_, own_bytes_);
  else if (on_kernels_)
    matmul_ = std::make_unique<KernelChunks>(*tiles, context, operand_spec_, geometry_, weights_,
                                             rounding_, chunk_, own_bytes_);
  else
    matmul_ = std::make_unique<OnednnChunks>(context, operand_spec_, geometry_, weights_, rounding_,
                                             chunk_, own_bytes_);
  if (AnyAccumulates(spec.sums) || AnyJudged(spec.sums))
    matmul_ =
        std::make_unique<AccumulatedChunks>(context, spec_, geometry_, weights_, operands_,
                                            rounding_, chunk_, own_bytes_, std::move(matmul_));
  // Only the fp32 kernels have Winograd's algorithm, so that `tiles` is not null here.
  if (matmul_->sparse_sums_are_inexact())
    sparse_sums_.emplace(context_, *tiles->winograd, geometry_);
  Prepare(*matmul_, static_cast<int>(spec.x.shape.n));
}

std::int64_t MatmulOp::chunks(int rows) const { return BlockCount(rows, chunk_); }

Chunk MatmulOp::ChunkAt(const Pass& pass, std::int64_t index, int worker) const {
  const std::int64_t image = index * chunk_;
  return {pass, image, std::min<std::int64_t>(chunk_, pass.rows - image), worker};
}

// Shared memory holds the partial gradients of all groups, and after them dw and db in PyTorch's
// order.
void MatmulOp::Prepare(ChunkMatmul& matmul, int rows) const {
  matmul.Prepare(std::min(chunk_, rows));
  matmul.Prepare(rows - (chunks(rows) - 1) * chunk_);
  if (!geometry_.training) return;
  const std::int64_t partials = PartialsAtMost() * matmul.partial_values();
  const std::int64_t plain = spec_.w.shape.numel() + spec_.y.shape.c;
  context_.scratch.Reserve(0, WholeLines(static_cast<std::size_t>(partials) * 4) +
                                  WholeLines(static_cast<std::size_t>(plain) * 4));
}

// Copies first: the kernels pack what they hold.
void MatmulOp::RefreshWeights(const Pass& pass) {
  weights_.Refresh(pass);
  operands_.Refresh(pass);
  matmul_->Refresh();
}

// The chunk's input; of a batch norm that is not stored it is made here.
TensorSpan MatmulOp::X(const Chunk& chunk, Reads reads) {
  if (!recomputed_) {
    const bool backward = reads == Reads::kBackward;
    return At(operands_.Of(backward ? Operand::kDwX : Operand::kForwardX), chunk.image);
  }
  std::byte* buffer = context_.scratch.worker(chunk.worker);
  return reads == Reads::kForward
             ? recomputed_->Forward(chunk.pass, chunk.image, chunk.images, buffer)
             : recomputed_->Recompute(chunk.pass, chunk.image, chunk.images, buffer);
}

// Chunks in any order: each block of y has statistics of its own, which FinishY adds up in their
// order.
void MatmulOp::Forward(const Pass& pass) {
  Prepare(*matmul_, pass.rows);
  operands_.Forward(pass);
  rounding_.SetFactorOfY(operands_.FactorOf(Operand::kForwardX) *
                         weights_.factor(WeightUse::kForward));
  fallbacks_.assign(static_cast<std::size_t>(chunks(pass.rows)), 0);
  context_.pool.For(chunks(pass.rows), [&](std::int64_t index, int worker) {
    const Chunk chunk = ChunkAt(pass, index, worker);
    if (!matmul_->Forward(chunk, X(chunk, Reads::kForward)))
      fallbacks_[static_cast<std::size_t>(index)] = kForward;
  });
  ForwardInFp32(pass);
  matmul_->FinishForward(pass);
  rounding_.FinishY(pass);
  if (recomputed_) recomputed_->FinishForward(pass);
}

// By output channel, of the copy that is multiplied.
ChannelMagnitudes MatmulOp::MagnitudesOfWeights() const {
  const Shape& w = spec_.w.shape;
  if (!geometry_.transposed)
    return MagnitudesOfRows(context_, weights_.plain(), {1, 1, w.n, w.per_image()});
  const std::int64_t groups = geometry_.groups;
  return MagnitudesOfRows(context_, weights_.plain(), {groups, w.n / groups, w.c, w.h * w.w});
}

float MatmulOp::DecideAlpha(const Pass& pass) {
  if (!spec_.dx) return 1;
  ADA_CHECK(spec_.scaler != nullptr);
  const scaling::Needs needs = scaling::NeedsOf(*spec_.scaler);
  scaling::Observation seen;
  if (needs.moments) {
    ADA_CHECK(spec_.dy.moments != nullptr);
    seen.dy = MomentsOfAll(context_, *spec_.dy.moments, pass.rows * spec_.y.shape.per_image());
    seen.w = weights_.moments();
  }
  if (needs.products) {
    ObserveProducts(MagnitudesOfImages(context_, spec_.dy.tensor, pass.rows), MagnitudesOfWeights(),
                    seen);
  }
  scaling::Decide(*spec_.scaler, seen, *spec_.dy.scale);
  *spec_.dx.scale = spec_.scaler->decision.scale_out;
  return spec_.scaler->decision.alpha;
}

// Whether dw is made slice by slice of the weights: where that gives the workers as much to do as
// groups of chunks would.
bool MatmulOp::BySlices() const {
  if (matmul_->whole_batch()) return true;
  return !recomputed_ && matmul_->slices() > 1 && matmul_->slices() >= GroupsAtMost();
}

// Alpha is decided before any product, from statistics that the ops after this one left. Then
// chunks, the fallback for those that were declined, and dw from the partial gradients.
void MatmulOp::Backward(const Pass& pass) {
  const float alpha = DecideAlpha(pass);
  rounding_.BeginDx();
  operands_.Backward(pass);
  rounding_.SetFactorOfDx(operands_.FactorOf(Operand::kDxDy) * weights_.factor(WeightUse::kData));
  Prepare(*matmul_, pass.rows);
  const std::int64_t count = chunks(pass.rows);
  const bool by_slices = BySlices();
  const std::int64_t per_group = by_slices ? count : GroupChunks(count, spec_.w.shape.numel());
  fallbacks_.assign(static_cast<std::size_t>(count), 0);
  (void)context_.scratch.shared();  // made before the workers ask for it
  if (by_slices)
    RunBackwardBySlices(pass, alpha);
  else
    RunBackward(pass, per_group, alpha);
  BackwardInFp32(pass, per_group, alpha);
  context_.pool.For(matmul_->judged_slices(pass), [&](std::int64_t i, int worker) {
    matmul_->JudgeSlice(static_cast<int>(i), {pass, 0, pass.rows, worker},
                        At(operands_.Of(Operand::kDwX), 0), Dy(0, Operand::kDwDy));
  });
  matmul_->FinishBackward(pass);
  rounding_.FinishDx(pass);
  FinishWeightGradient(pass, per_group);
}

// A group is one worker's: its chunks add to one partial gradient one after the other. How many
// there are is fixed by shapes, so that the sums of dw do not depend on threads.
void MatmulOp::RunBackward(const Pass& pass, std::int64_t per_group, float alpha) {
  const std::int64_t count = chunks(pass.rows);
  context_.pool.For(
      BlockCount(count, static_cast<int>(per_group)), [&](std::int64_t group, int worker) {
        const std::int64_t begin = group * per_group, end = std::min(begin + per_group, count);
        for (std::int64_t index = begin; index < end; ++index)
          BackwardChunk(ChunkAt(pass, index, worker), index == begin, PartialOf(group), alpha);
      });
}

// Slices of dw, and chunks of dx at the same time.
void MatmulOp::RunBackwardBySlices(const Pass& pass, float alpha) {
  const std::int64_t slices = matmul_->slices(), count = spec_.dx ? chunks(pass.rows) : 0;
  context_.pool.For(slices + count, [&](std::int64_t i, int worker) {
    if (i < slices)
      return matmul_->WeightSlice(static_cast<int>(i), {pass, 0, pass.rows, worker},
                                  At(operands_.Of(Operand::kDwX), 0), Dy(0, Operand::kDwDy),
                                  PartialOf(0));
    const Chunk chunk = ChunkAt(pass, i - slices, worker);
    const TensorSpan x = X(chunk, Reads::kBackward), dy = Dy(chunk.image, Operand::kDxDy);
    if (!DataGradient(*matmul_, chunk, x, dy, alpha))
      fallbacks_[static_cast<std::size_t>(i - slices)] |= kData;
  });
}

void MatmulOp::BackwardChunk(const Chunk& chunk, bool first, float* partial, float alpha) {
  const TensorSpan x = X(chunk, Reads::kBackward);
  std::uint8_t& fallback = fallbacks_[static_cast<std::size_t>(chunk.image / chunk_)];
  if (!matmul_->WeightGradient(chunk, x, Dy(chunk.image, Operand::kDwDy), first, partial)) {
    if (first) std::fill_n(partial, matmul_->partial_values(), 0.0f);
    fallback |= kWeights;
  }
  if (spec_.dx && !DataGradient(*matmul_, chunk, x, Dy(chunk.image, Operand::kDxDy), alpha))
    fallback |= kData;
}

// With the sums that the batch norm before it wants, while dx is in the cache.
bool MatmulOp::DataGradient(ChunkMatmul& matmul, const Chunk& chunk, const TensorSpan& x,
                            const TensorSpan& dy, float alpha) {
  TensorSpan in = dy;
  if (AlphaComesFirst(spec_) && alpha != 1) {
    const std::int64_t values = chunk.images * spec_.y.shape.per_image();
    const std::size_t offset = recomputed_ ? WholeLines(recomputed_->chunk_bytes(chunk_)) : 0;
    in = {context_.scratch.worker(chunk.worker) + offset, Storage::kF32};
    auto* wide = static_cast<float*>(in.data);
    context_.kernels.widen(dy, wide, values);
    context_.kernels.round(wide, alpha, in, values, RoundOnly(spec_.dy.tensor.format));
    alpha = 1;
  }
  if (!matmul.DataGradient(chunk, in, alpha)) return false;
  if (recomputed_)
    recomputed_->TakeSums(chunk.image, chunk.images, x, At(spec_.dx.tensor, chunk.image));
  return true;
}

}  // namespace ada::backend::cpu
