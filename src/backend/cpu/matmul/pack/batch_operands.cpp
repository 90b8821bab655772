// Chooses the narrowest format and storage that hold an operand, and makes the rounded copies for
// each batch.
#include "backend/cpu/matmul/pack/batch_operands.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "backend/hadamard.h"
#include "error.h"
#include "number/blocks/block_counts_inline.h"
#include "number/number_grid.h"
#include "number/tensor.h"

namespace ada::backend::cpu {
namespace {

// A value's format and storage, as a matmul reads it.
struct FormatAndStorage {
  NumberFormat format;
  Storage storage;
};

// Whether every value of `narrow` is one of `wide`.
bool Holds(const NumberFormat& wide, const NumberFormat& narrow) {
  return wide.mantissa_bits >= narrow.mantissa_bits && wide.largest() >= narrow.largest() &&
         wide.smallest_subnormal() <= narrow.smallest_subnormal();
}

// The format and storage that hold one operand after its rounding.
FormatAndStorage StoredAs(const OperandRounding& operand, const FormatAndStorage& stored) {
  if (!operand.rounds) return stored;
  const FormatAndStorage fp32 = {kFp32, Storage::kF32}, bf16 = {kBf16, Storage::kBF16};
  if (operand.block) {
    // A transform is made in the memory of the copy: of bf16 in bf16, of all else in fp32.
    const bool is_bf16 = IsKeptInBf16(stored.format, stored.storage);
    if (operand.hadamard && !is_bf16) return fp32;
    const BlockFormat& format = *operand.block;
    const bool fits = FitsBf16(format, stored.storage != Storage::kF32);
    return fits || BlockRounding::LeavesFactor(format) ? bf16 : fp32;
  }
  if (operand.hadamard || operand.style.per_tensor_scale != nullptr || operand.row_scaled)
    return fp32;
  return {operand.format, StorageFor(operand.format)};
}

// The narrowest format and storage for all of them. Values in fp32 storage may be any.
FormatAndStorage Common(const std::vector<FormatAndStorage>& all) {
  for (const FormatAndStorage& wide :
       {FormatAndStorage{kBf16, Storage::kBF16}, FormatAndStorage{kFp16, Storage::kF16}}) {
    const bool holds = std::all_of(all.begin(), all.end(), [&](const FormatAndStorage& one) {
      return one.storage != Storage::kF32 && Holds(wide.format, one.format);
    });
    if (holds) return wide;
  }
  return {kFp32, Storage::kF32};
}

// Whether the matmul that takes the operand is computed: the first layer has no dx, and without
// training there is no dw either.
bool IsTaken(const MatmulSpec& spec, Operand operand) {
  using enum Operand;
  if (operand == kForwardX || operand == kForwardW) return true;
  return operand == kDxDy || operand == kDxW ? static_cast<bool>(spec.dx)
                                             : static_cast<bool>(spec.dy);
}

// How an operand is rounded; not at all where no matmul takes it.
OperandRounding RoundingOf(const MatmulSpec& spec, Operand operand) {
  return IsTaken(spec, operand) ? spec.operands[IndexOf(operand)] : OperandRounding{};
}

std::size_t BytesOf(const Tensor& tensor) { return WholeLines(tensor.bytes()); }

}  // namespace

// Both matmuls that read a tensor share one storage, so that kernels are chosen once for the layer.
MatmulSpec AsOperands(const MatmulSpec& spec) {
  using enum Operand;
  MatmulSpec operands = spec;
  // Where neither is rounded the layer reads what is stored: nothing.
  const auto common = [&](const FormatAndStorage& stored, std::array<Operand, 2> both) {
    std::vector<FormatAndStorage> all;
    bool rounds = false;
    for (const Operand operand : both) {
      if (!IsTaken(spec, operand)) continue;
      const OperandRounding rounding = RoundingOf(spec, operand);
      rounds = rounds || rounding.rounds;
      all.push_back(StoredAs(rounding, stored));
    }
    return rounds ? std::optional(Common(all)) : std::nullopt;
  };
  if (const auto x = common({spec.x.format, spec.x.storage}, {kForwardX, kDwX}))
    operands.x.format = x->format, operands.x.storage = x->storage;
  const bool scaled = spec.w_style.per_tensor_scale != nullptr || spec.w_format == kFp32;
  const Storage w_storage = scaled ? Storage::kF32 : StorageFor(spec.w_format);
  if (const auto w = common({spec.w_format, w_storage}, {kForwardW, kDxW}))
    operands.w_format = w->format;
  const Tensor& dy = spec.dy.tensor;
  if (const auto as = common({dy.format, dy.storage}, {kDxDy, kDwDy}))
    operands.dy.tensor.format = as->format, operands.dy.tensor.storage = as->storage;
  return operands;
}

bool CountsBlocks(const Pass& pass, const OperandRounding& operand) {
  return operand.stats != nullptr && Counts(pass, operand.style, operand.stats);
}

void TakeBlockCounts(const OperandRounding& operand, bool counts, std::int64_t subnormal) {
  if (operand.stats == nullptr) return;
  TensorStats& stats = *operand.stats;
  if (!counts) stats = TensorStats{};
  if (!counts || !stats.full) return;
  ada::TakeBlockCounts(*operand.block_counts, subnormal, stats);
}

// A copy is also needed where the other matmul's operand forces a narrower storage than the tensor
// has.
BatchOperand::BatchOperand(const Context& context, const MatmulGeometry& geometry,
                           const Tensor& stored, float* scale, Operand which,
                           const OperandRounding& operand, const Tensor& as, bool keeps_scales)
    : context_(context),
      stored_(stored),
      tensor_(stored),
      operand_(operand),
      copies_(operand.rounds || (stored.storage != as.storage && as.storage != Storage::kF32)) {
  if (!copies_) return;
  keeps_scales_ = keeps_scales;
  tensor_.storage = as.storage;
  const bool plain = operand.rounds && !operand.block && !operand.hadamard;
  tensor_.format = plain ? operand.format : as.format;
  // Knows nothing of blocks: it is given the values that blocks are made of.
  Gradient rounded;
  rounded.tensor = tensor_, rounded.scale = scale;
  rounded.tensor.format = operand.block ? kFp32 : operand.rounds ? operand.format : as.format;
  rounded.stats = operand.stats, rounded.style = operand.style;
  if (operand.block) rounded.style.stochastic = false;
  stats_ = operand.stats != nullptr ? RoundingStats(rounded)
                                    : RoundingStats(rounded.tensor, rounded.style, nullptr);
  const std::size_t block_values = BlockValues(stored.shape);
  const std::size_t scale_bytes = operand.row_scaled ? RowScales::Bytes(block_values) : 0;
  context.scratch.Reserve(block_values * sizeof(float) + scale_bytes, 0);
  // In a 1x1 convolution rows are pixels.
  const bool pointwise = !geometry.linear && geometry.w.h * geometry.w.w == 1 &&
                         geometry.stride == std::array{1, 1} &&
                         geometry.padding == std::array{0, 0};
  transform_values_ = pointwise ? stored.shape.c : stored.shape.per_image();
  if (operand.hadamard && (which == Operand::kForwardX || which == Operand::kDxDy))
    transform_rows_ =
        RowsOfBatch(geometry.linear, geometry.groups, stored.shape, which, /*square=*/false);
  takes_as_pytorch_ =
      transform_rows_ && TakenAsPyTorch(geometry.linear, stored.shape, *transform_rows_);
  if (!operand.block && !operand.row_scaled) return;
  const OperandRows rows =
      RowsOfBatch(geometry.linear, geometry.groups, stored.shape, operand.laid_as.value_or(which),
                  operand.block && operand.block->square);
  row_values_ = rows.width;
  if (operand.row_scaled)
    row_scales_.emplace(context, operand, rows, IsKeptInBf16(stored.format, stored.storage));
  if (!operand.block) return;
  permutes_ = TakenAsPyTorch(geometry.linear, stored.shape, rows);
  blocks_.emplace(context, operand, rows, IsKeptInBf16(stored.format, stored.storage));
}

std::size_t BatchOperand::bytes() const {
  const auto values = static_cast<std::size_t>(stored_.shape.numel());
  return (copies_ ? BytesOf(tensor_) : 0) + (keeps_scales_ ? WholeLines(values * 4) : 0);
}

parallel::Communicator* BatchOperand::Sharing(const Pass& pass) const {
  return pass.whole_rows > 0 ? context_.shared.rules : nullptr;
}

// In a tensor that processes share, a scale must be the same in all of them.
float BatchOperand::Largest(const Tensor& of, const Pass& pass) const {
  const Shape& shape = of.shape;
  std::vector<std::uint32_t> largest(
      static_cast<std::size_t>(BlockCount(pass.rows, BlockImages(shape))));
  ForBlocks(context_, shape, pass.rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t block, int) {
              largest[static_cast<std::size_t>(block)] =
                  context_.kernels.largest_stored(At(of, image), images * shape.per_image());
            });
  const float mine = OfBits(*std::max_element(largest.begin(), largest.end()));
  parallel::Communicator* const shared = Sharing(pass);
  if (!IsShared(shared)) return mine;
  return static_cast<float>(LargestOfAll(*shared, static_cast<double>(mine)));
}

// In fp32 and, as in Transformer Engine, rounded to bf16 if values are stored in it.
Tensor BatchOperand::Transformed(const Pass& pass) const {
  Tensor transformed = tensor_;
  const bool is_bf16 = IsKeptInBf16(stored_.format, stored_.storage);
  transformed.format = is_bf16 ? kBf16 : kFp32;
  transform_rows_ ? TransformChannels(pass, transformed) : TransformRows(pass, transformed);
  return transformed;
}

// Whole groups of channels of each pixel, or of values of an image in PyTorch's order. The weights
// have the signs of their last refresh, and so has what is multiplied with them.
void BatchOperand::TransformChannels(const Pass& pass, const Tensor& transformed) const {
  const OperandRows& rows = *transform_rows_;
  ForBlocks(context_, stored_.shape, pass.rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t, int worker) {
              const std::int64_t values = images * stored_.shape.per_image();
              auto* wide = reinterpret_cast<float*>(context_.scratch.worker(worker));
              context_.kernels.widen(At(stored_, image), wide, values);
              if (takes_as_pytorch_) Permute(wide, images, /*back=*/false);
              TransformLines(context_.kernels, signs_,
                             {rows.matrices, values / rows.width, rows.length, rows.matrix_stride,
                              rows.width, rows.stride},
                             wide);
              if (takes_as_pytorch_) Permute(wide, images, /*back=*/true);
              context_.kernels.round(wide, 1.0f, At(transformed, image), values,
                                     RoundOnly(transformed.format));
            });
}

// Whole groups of rows.
void BatchOperand::TransformRows(const Pass& pass, const Tensor& transformed) const {
  constexpr std::int64_t kLanes = 1024;
  const std::vector<float> signs = operand_.hadamard.Signs(pass.seed, pass.draw);
  const std::int64_t size = operand_.hadamard.size;
  const std::int64_t width = transform_values_;
  const std::int64_t rows = pass.rows * stored_.shape.per_image() / width;
  const BlockKernels& kernels = BlockKernelsOf(context_.kernels);
  const std::int64_t groups = BlockCount(rows, size);
  const std::int64_t runs = (width + kLanes - 1) / kLanes;
  context_.pool.For(groups * runs, [&](std::int64_t i, int) {
    const std::int64_t row = i / runs * size, lane = i % runs * kLanes;
    const std::int64_t lanes = std::min(kLanes, width - lane);
    const std::int64_t count = std::min(size, rows - row);
    const TensorSpan from = Advance(At(stored_, 0), row * width + lane);
    const TensorSpan to = Advance(At(transformed, 0), row * width + lane);
    if (count == size) return kernels.hadamard(signs, from, to, width, lanes, transformed.format);
    for (std::int64_t k = 0; k < count; ++k) {
      const TensorSpan out = Advance(to, k * width);
      if (out.storage == from.storage)
        std::memcpy(out.data, Advance(from, k * width).data,
                    ada::BytesOf(out.storage) * static_cast<std::size_t>(lanes));
      else
        context_.kernels.widen(Advance(from, k * width), static_cast<float*>(out.data), lanes);
    }
  });
}

void BatchOperand::Refresh(const Pass& pass) {
  if (transform_rows_) signs_ = operand_.hadamard.Signs(pass.seed, pass.draw);
}

void BatchOperand::Make(const Pass& pass, std::byte* memory) {
  if (!copies_) return;
  tensor_.data = memory;
  if (keeps_scales_) {
    scales_ = reinterpret_cast<float*>(memory + BytesOf(tensor_));
    blocks_ ? blocks_->KeepScales(scales_) : row_scales_->KeepScales(scales_);
  }
  const Tensor from = operand_.hadamard ? Transformed(pass) : stored_;
  blocks_ ? RoundInBlocks(pass, from) : RoundValues(pass, from);
  if (operand_.captured == nullptr) return;
  context_.kernels.widen(At(tensor_, 0), operand_.captured->values,
                         pass.rows * tensor_.shape.per_image());
  operand_.captured->factor = factor();
}

void BatchOperand::RoundValues(const Pass& pass, const Tensor& from) {
  const Shape& shape = from.shape;
  if (operand_.current != nullptr)
    operand_.current->scale = scaling::CurrentScale(operand_.rule, Largest(from, pass));
  if (row_scales_)
    row_scales_->Measure(At(from, 0), pass.rows * shape.per_image() / row_values_, Sharing(pass));
  ForBlocks(context_, shape, pass.rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t block, int worker) {
              const std::int64_t values = images * shape.per_image();
              auto* wide = reinterpret_cast<float*>(context_.scratch.worker(worker));
              context_.kernels.widen(At(from, image), wide, values);
              const Rounding rounding = stats_.For(pass, block);
              if (row_scales_)
                row_scales_->Round(image * shape.per_image(), values, wide, rounding,
                                   reinterpret_cast<std::byte*>(wide + BlockValues(shape)),
                                   static_cast<float*>(At(tensor_, image).data));
              else
                context_.kernels.round(wide, 1.0f, At(tensor_, image), values, rounding);
            });
  stats_.Finish(pass);
}

// What the blocks are given is inspected first, for the counts that a plain rounding has as well.
void BatchOperand::RoundInBlocks(const Pass& pass, const Tensor& from) {
  const Shape& shape = from.shape;
  const bool counts = CountsBlocks(pass, operand_);
  if (counts) {
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t images, std::int64_t block, int) {
                context_.kernels.inspect(At(from, image), images * shape.per_image(),
                                         stats_.For(pass, block));
              });
    stats_.Finish(pass);
  }
  const float amax = blocks_->asks_amax() ? Largest(from, pass) : 0;
  const std::int64_t row_images = shape.per_image() / row_values_;  // rows of an image
  const BlockRounding::Turn permute = [&](const RowRange& range, float* values, bool back) {
    Permute(values, range.rows, back);
  };
  const std::int64_t subnormal =
      blocks_->Run(pass, pass.rows * row_images, amax, Sharing(pass),
                   static_cast<std::uint64_t>(pass.first_row * shape.per_image()), At(from, 0),
                   At(tensor_, 0), permutes_ ? permute : nullptr);
  TakeBlockCounts(operand_, counts, subnormal);
}

void BatchOperand::Permute(float* values, std::int64_t images, bool back) const {
  const std::int64_t all = stored_.shape.per_image(), channels = stored_.shape.c;
  const std::int64_t pixels = all / channels;
  std::vector<float> image(static_cast<std::size_t>(all));
  for (std::int64_t i = 0; i < images; ++i, values += all) {
    for (std::int64_t p = 0; p < pixels; ++p)
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto in_memory = p * channels + c, plain = c * pixels + p;
        image[static_cast<std::size_t>(back ? in_memory : plain)] =
            values[back ? plain : in_memory];
      }
    std::copy(image.begin(), image.end(), values);
  }
}

BatchOperands::BatchOperands(const Context& context, const MatmulGeometry& geometry,
                             const MatmulSpec& spec, const MatmulSpec& operand_spec)
    : context_(context), has_dx_(spec.dx) {
  const auto add = [&](Operand operand, const Tensor& stored, float* scale, const Tensor& as) {
    operands_.emplace_back(context, geometry, stored, scale, operand, RoundingOf(spec, operand), as,
                           KeepsScales(spec, operand));
  };
  const Gradient& dy = spec.dy;
  add(Operand::kForwardX, spec.x, nullptr, operand_spec.x);
  std::size_t forward = operands_.front().bytes(), backward = 0;
  if (dy) {
    add(Operand::kDxDy, dy.tensor, dy.scale, operand_spec.dy.tensor);
    add(Operand::kDwX, spec.x, nullptr, operand_spec.x);
    add(Operand::kDwDy, dy.tensor, dy.scale, operand_spec.dy.tensor);
    for (std::size_t i = has_dx_ ? 1 : 2; i < operands_.size(); ++i)
      backward += operands_[i].bytes();
  }
  context.scratch.ReserveOperands(std::max(forward, backward));
}

void BatchOperands::Refresh(const Pass& pass) {
  for (BatchOperand& operand : operands_) operand.Refresh(pass);
}

void BatchOperands::Make(const Pass& pass, std::size_t first, std::size_t last) {
  std::size_t at = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (operands_[i].bytes() > 0) operands_[i].Make(pass, context_.scratch.operands() + at);
    at += operands_[i].bytes();
  }
}
void BatchOperands::Forward(const Pass& pass) { Make(pass, 0, 1); }
void BatchOperands::Backward(const Pass& pass) { Make(pass, has_dx_ ? 1 : 2, operands_.size()); }

}  // namespace ada::backend::cpu
