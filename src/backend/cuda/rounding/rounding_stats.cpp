// What an op knows about its rounding points before any call; see rounding_stats.h.
#include "backend/cuda/rounding/rounding_stats.h"

#include <algorithm>
#include <limits>

#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {

Rounding RoundOnly(const NumberFormat& format) {
  Rounding rounding;
  rounding.grid = GridOf(format);
  return rounding;
}

RoundingStats::RoundingStats(const Context& context, const Tensor& tensor,
                             const RoundingStyle& style, TensorStats* stats, TensorMoments* moments,
                             int most_blocks)
    : format_(tensor.format),
      storage_(tensor.storage),
      style_(style),
      stats_(stats),
      moments_(moments) {
  stream_ = &context.stream, pass_ = context.pass;
  // An empty tensor, as of a gradient that is not computed, rounds nothing.
  if (!tensor) return;
  ADA_CHECK(style.per_tensor_scale == nullptr || tensor.storage == Storage::kF32);
  // Kernels count the values of a tensor of the batch with 32 bits.
  ADA_CHECK(tensor.shape.numel() <= std::numeric_limits<std::uint32_t>::max());
  per_image_ = tensor.shape.per_image();
  grid_ = GridOf(format_);
  MakeRoom(context, tensor.shape.numel(), most_blocks,
           stats != nullptr ? StatsLevel::kCounts : StatsLevel::kMoments);
}

RoundingStats::RoundingStats(const Context& context, const Gradient& g, int most_blocks)
    : RoundingStats(context, RoundedTensorOf(g), RoundingStyleOf(g), g.stats, g.moments,
                    most_blocks) {
  scale_ = g.scale, size_only_ = !g.all_moments, amax_deferred_ = g.amax_deferred;
  if (g.moments == nullptr) return;
  next_decisions_ = &context.next_decisions;
  finished_ = context.AllocateZeroed<std::uint32_t>(1);
}

RoundingStats RoundingStats::OfLeft(const Context& context, Gradient gradient) {
  if (!gradient.amax_deferred || gradient.stats == nullptr || gradient.moments != nullptr)
    return {};
  gradient.amax_deferred = false;  // it is recorded here
  return {context, gradient};
}

RoundingStats RoundingStats::OfParameter(const Context& context, const NumberFormat& format,
                                         Storage storage, std::int64_t numel,
                                         const RoundingStyle& style, TensorStats* stats,
                                         TensorMoments* moments) {
  ADA_CHECK(style.per_tensor_scale == nullptr || storage == Storage::kF32);
  RoundingStats made;
  made.stream_ = &context.stream, made.pass_ = context.pass;
  made.format_ = format, made.storage_ = storage, made.style_ = style;
  made.stats_ = stats, made.moments_ = moments;
  made.values_ = numel;
  made.grid_ = GridOf(format);
  made.MakeRoom(context, numel, 0, StatsLevel::kCounts);
  return made;
}

// Memory for totals and for the sums of each block, of the most detailed statistics that a pass may
// ask for.
void RoundingStats::MakeRoom(const Context& context, std::int64_t values, int most_blocks,
                             StatsLevel most) {
  if (!wanted()) return;
  const int blocks = std::max(most_blocks, MostFlatBlocksOf(values));
  totals_ = context.AllocateZeroed<StatsTotals>(1);
  block_sums_ = context.Allocate<double>(std::int64_t{StatsSums(most)} * blocks);
}

// Least first: nothing, the largest magnitude, moments, all counts. A deferred largest magnitude is
// found by whoever reads the values next.
StatsLevel RoundingStats::Level(const Pass& pass) const {
  if (!wanted()) return StatsLevel::kNone;
  if (Counts(pass, style_, stats_)) return StatsLevel::kCounts;
  if (moments_ != nullptr) return StatsLevel::kMoments;
  return amax_deferred_ ? StatsLevel::kNone : StatsLevel::kLargest;
}

bool RoundingStats::RecordsLeft(const Pass& pass) const {
  return Level(pass) == StatsLevel::kLargest;
}
CountValuesKernel<StatsLevel::kLargest> RoundingStats::LeftKernel(const Pass& pass,
                                                                  const TensorSpan& in,
                                                                  int& blocks) const {
  blocks = 0;
  if (!RecordsLeft(pass)) return {};
  const Rounding how = For(pass);
  const FlatBlocks flat = FlatBlocksOf(how.values);
  blocks = flat.blocks;
  return {{how, how.values, flat.size}, in};
}

StorageType RoundingStats::PlainlyAs(const Pass& pass) const {
  // Conversions that the device does itself round to nearest in the formats of their storage;
  // everything else goes through the grid of the format.
  const bool hardware = (storage_ == Storage::kF16 && format_ == kFp16) ||
                        (storage_ == Storage::kBF16 && format_ == kBf16);
  const bool plain = hardware && stream_->switches().plain && per_image_ > 0 &&
                     style_.per_tensor_scale == nullptr && !(style_.stochastic && pass.training) &&
                     Level(pass) != StatsLevel::kCounts;
  return plain ? StorageTypeOf(storage_) : StorageType::kAny;
}

Rounding RoundingStats::For(const Pass& pass, std::int64_t values) const {
  Rounding rounding;
  rounding.grid = grid_;
  rounding.pass = pass_;
  if (style_.per_tensor_scale != nullptr)
    rounding.per_tensor_scale = &style_.per_tensor_scale->scale;
  rounding.stochastic = style_.stochastic && pass.training, rounding.stream = style_.stream;
  rounding.first = pass.first_row * per_image_;
  rounding.values = ValuesOf(pass, values);
  rounding.scale_from = scale_from_, rounding.scale_to = scale_;
  if (!wanted()) return rounding;
  rounding.totals = totals_, rounding.block_sums = block_sums_;
  rounding.stats = stats_, rounding.moments = moments_;
  rounding.carried = scale_from_ != nullptr ? scale_from_ : scale_;
  if (FillsBins(pass, style_, stats_)) rounding.bins = style_.bins;
  rounding.full = FillsStats(pass, style_);
  rounding.size_only = size_only_;
  // As on a CPU: fp32 sums where squares cannot leave its range.
  rounding.narrow =
      per_image_ > 0 && storage_ == Storage::kF16 && Level(pass) == StatsLevel::kMoments;
  return rounding;
}

// Values in 16 bits of which only the largest magnitude is wanted are read eight at a time.
void RoundingStats::Count(const Pass& pass, const TensorSpan& in, std::int64_t values) const {
  const Rounding how = For(pass, values);
  const FlatBlocks flat = FlatBlocksOf(how.values);
  if (Level(pass) == StatsLevel::kLargest && how.values % 8 == 0 && in.storage == storage_ &&
      HasVec8(in) && PlainlyAs(pass) != StorageType::kAny) {
    if (storage_ == Storage::kF16)
      return Launch(*stream_, LargestPlainKernel<StorageType::kF16>{how, how.values, flat.size, in},
                    flat.blocks);
    return Launch(*stream_, LargestPlainKernel<StorageType::kBF16>{how, how.values, flat.size, in},
                  flat.blocks);
  }
  AtLevel(pass, [&](auto level) {
    using Kernel = CountValuesKernel<decltype(level)::value>;
    if constexpr (decltype(level)::value != StatsLevel::kNone)
      LaunchAndDecide(Kernel{{how, how.values, flat.size}, in}, level, flat.blocks);
  });
}

}  // namespace ada::backend::cuda
