// Rounding and reordering of weights; see weight_copies.h.
#include "backend/cpu/matmul/pack/weight_copies.h"

#include <algorithm>

#include "backend/cpu/matmul/pack/batch_operands.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/decisions.h"
#include "number/number_grid.h"
#include "number/tensor.h"

namespace ada::backend::cpu {

WeightCopies::WeightCopies(const Context& context, const MatmulGeometry& geometry,
                           const MatmulSpec& spec, bool moments)
    : context_(context),
      geometry_(geometry),
      master_(spec.w),
      bf16_(!spec.w_style.per_tensor_scale && HasValuesOf(kBf16, spec.w_format)),
      stats_(RoundingStats::OfParameter(spec.w_format, spec.w.shape.numel(), spec.w_style,
                                        spec.w_stats, moments ? &moments_ : nullptr)) {
  if (stats_.rounds()) rounded_.resize(static_cast<std::size_t>(master_.shape.numel()));
  const std::int64_t values = master_.shape.numel();
  for (const auto& [operand, use] : {std::pair{Operand::kForwardW, WeightUse::kForward},
                                     std::pair{Operand::kDxW, WeightUse::kData}}) {
    const OperandRounding& rounding = spec.operands[IndexOf(operand)];
    if (!rounding.rounds || (use == WeightUse::kData && !spec.dx)) continue;
    OperandCopy& copy = operand_copies_[static_cast<std::size_t>(use)];
    copy.operand = rounding;
    const NumberFormat& format = rounding.block ? kFp32 : rounding.format;
    copy.stats = RoundingStats::OfParameter(format, values, rounding.style, rounding.stats);
    copy.values.resize(static_cast<std::size_t>(values));
    if (rounding.hadamard)
      copy.transform = RowsOfWeights(geometry.linear, geometry.transposed, geometry.groups,
                                     geometry.w, operand, /*square=*/false);
    if (!rounding.block && !rounding.row_scaled) continue;
    const OperandRows rows =
        RowsOfWeights(geometry.linear, geometry.transposed, geometry.groups, geometry.w,
                      rounding.laid_as.value_or(operand), rounding.block && rounding.block->square);
    if (KeepsScales(spec, operand)) copy.scales.resize(static_cast<std::size_t>(values));
    if (rounding.block) {
      copy.blocks.emplace(context, rounding, rows, bf16_);
    } else {
      copy.row_scales.emplace(context, rounding, rows, bf16_);
      context.scratch.Reserve(RowScales::Bytes(static_cast<std::size_t>(kSegment)), 0);
    }
  }
  bytes_ = static_cast<std::ptrdiff_t>(
      (rounded_.size() + operand_copies_[0].values.size() + operand_copies_[1].values.size()) *
      sizeof(float));
  context_.scratch.CountOwn(bytes_);
}

WeightCopies::~WeightCopies() { context_.scratch.CountOwn(-bytes_); }

const float* WeightCopies::plain() const {
  return rounded_.empty() ? master_.f32() : rounded_.data();
}

const float* WeightCopies::plain(WeightUse use) const {
  const Floats& values = operand_copies_[static_cast<std::size_t>(use)].values;
  return values.empty() ? plain() : values.data();
}

const float* WeightCopies::scales(WeightUse use) const {
  const Floats& scales = operand_copies_[static_cast<std::size_t>(use)].scales;
  return scales.empty() ? nullptr : scales.data();
}

float WeightCopies::factor(WeightUse use) const {
  const auto& blocks = operand_copies_[static_cast<std::size_t>(use)].blocks;
  return blocks ? blocks->factor() : 1;
}

// Chunks of different sizes often want the same layout: it is kept once.
const float* WeightCopies::Add(WeightUse use, const std::shared_ptr<const WeightLayout>& layout) {
  for (const Copy& copy : copies_)
    if (Same(copy.use, use) && SameLayout(*copy.layout, *layout)) return copy.values.data();
  Copy copy;
  copy.use = use, copy.layout = layout;
  const std::size_t bytes = WholeLines(LayoutBytes(*layout));
  copy.values.resize(bytes / sizeof(float));
  context_.scratch.CountOwn(static_cast<std::ptrdiff_t>(bytes));
  bytes_ += static_cast<std::ptrdiff_t>(bytes);
  if (refreshed_) ToLayout(geometry_, plain(use), *layout, copy.values.data());
  copies_.push_back(std::move(copy));
  return copies_.back().values.data();
}

// A master that is multiplied in fp32 is measured in place, without a copy.
void WeightCopies::RoundStored(const Pass& pass) {
  if (rounded_.empty() && !stats_.wanted()) return;
  ForSegments(
      context_, master_.shape.numel(),
      [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
        const Rounding rounding = stats_.For(pass, segment);
        float* in = master_.f32() + first;
        if (rounded_.empty())
          context_.kernels.inspect({in, Storage::kF32}, n, rounding);
        else
          context_.kernels.round(in, 1.0f, {rounded_.data() + first, Storage::kF32}, n, rounding);
      });
  stats_.Finish(pass);
}

// Bits of magnitudes, a NaN the largest.
float WeightCopies::Largest(const float* of) const {
  const std::int64_t values = master_.shape.numel();
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(Segments(values)));
  ForSegments(context_, values, [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
    largest[static_cast<std::size_t>(segment)] = context_.kernels.largest(of + first, n);
  });
  return OfBits(*std::max_element(largest.begin(), largest.end()));
}

// Lines along the sum, in memory's order or, down the rows of a group, by column; rounded to bf16
// where the layer's copy is that.
const float* WeightCopies::Transformed(OperandCopy& copy, const Pass& pass) const {
  if (!copy.transform) return plain();
  const OperandRows& rows = *copy.transform;
  const std::int64_t numel = master_.shape.numel(), n = numel / rows.width;
  float* const to = copy.values.data();
  std::copy_n(plain(), numel, to);
  const std::vector<float> signs = copy.operand.hadamard.Signs(pass.seed, pass.draw);
  constexpr std::int64_t kColumns = 64;  // of one task
  const std::int64_t group = rows.group > 0 ? rows.group : n;
  const std::int64_t runs = rows.down ? (rows.width + kColumns - 1) / kColumns : 1;
  const std::int64_t tasks = rows.down ? n / group * runs : n;
  context_.pool.For(tasks, [&](std::int64_t i, int) {
    const std::int64_t column = i % runs * kColumns;
    const BlockLayout lines =
        rows.down ? BlockLayout{std::min(kColumns, rows.width - column), 1, group, 1, 0, rows.width}
                  : BlockLayout{rows.matrices, 1, rows.length, rows.matrix_stride, 0, rows.stride};
    TransformLines(context_.kernels, signs, lines,
                   to + (rows.down ? i / runs * group * rows.width + column : i * rows.width));
  });
  if (bf16_)
    ForSegments(context_, numel, [&](std::int64_t first, std::int64_t count, std::int64_t, int) {
      context_.kernels.round(to + first, 1.0f, {to + first, Storage::kF32}, count,
                             RoundOnly(kBf16));
    });
  return to;
}

void WeightCopies::RoundOperand(OperandCopy& copy, const Pass& pass) {
  const float* const from = Transformed(copy, pass);
  copy.blocks ? RoundInBlocks(copy, from, pass) : RoundValues(copy, from, pass);
  CapturedOperand* const captured = copy.operand.captured;
  if (captured == nullptr) return;
  std::copy(copy.values.begin(), copy.values.end(), captured->values);
  captured->factor = copy.blocks ? copy.blocks->factor() : 1;
}

void WeightCopies::RoundValues(OperandCopy& copy, const float* from, const Pass& pass) {
  if (copy.operand.current != nullptr)
    copy.operand.current->scale = scaling::CurrentScale(copy.operand.rule, Largest(from));
  if (copy.row_scales) {
    if (!copy.scales.empty()) copy.row_scales->KeepScales(copy.scales.data());
    copy.row_scales->Measure({const_cast<float*>(from), Storage::kF32}, master_.shape.n, nullptr);
  }
  ForSegments(context_, master_.shape.numel(),
              [&](std::int64_t first, std::int64_t n, std::int64_t segment, int worker) {
                const Rounding rounding = copy.stats.For(pass, segment);
                float* to = copy.values.data() + first;
                if (copy.row_scales)
                  copy.row_scales->Round(first, n, from + first, rounding,
                                         context_.scratch.worker(worker), to);
                else
                  context_.kernels.round(from + first, 1.0f, {to, Storage::kF32}, n, rounding);
              });
  copy.stats.Finish(pass);
}

void WeightCopies::RoundInBlocks(OperandCopy& copy, const float* from, const Pass& pass) {
  const OperandRounding& operand = copy.operand;
  const std::int64_t values = master_.shape.numel();
  const bool counts = CountsBlocks(pass, operand);
  if (counts) {
    ForSegments(context_, values,
                [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                  context_.kernels.inspect({const_cast<float*>(from) + first, Storage::kF32}, n,
                                           copy.stats.For(pass, segment));
                });
    copy.stats.Finish(pass);
  }
  if (!copy.scales.empty()) copy.blocks->KeepScales(copy.scales.data());
  const float amax = copy.blocks->asks_amax() ? Largest(from) : 0;
  const std::int64_t subnormal = copy.blocks->Run(pass, master_.shape.n, amax, nullptr, 0,
                                                  {const_cast<float*>(from), Storage::kF32},
                                                  {copy.values.data(), Storage::kF32});
  TakeBlockCounts(operand, counts, subnormal);
}

// In the order in which each needs the one before: the layer's copy, the operands, the layouts.
void WeightCopies::Refresh(const Pass& pass) {
  RoundStored(pass);
  for (OperandCopy& copy : operand_copies_)
    if (!copy.values.empty()) RoundOperand(copy, pass);
  context_.pool.For(static_cast<std::int64_t>(copies_.size()), [&](std::int64_t i, int) {
    Copy& copy = copies_[static_cast<std::size_t>(i)];
    ToLayout(geometry_, plain(copy.use), *copy.layout, copy.values.data());
  });
  refreshed_ = true;
}

}  // namespace ada::backend::cpu
