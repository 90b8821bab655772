// What an op knows of its rounding points before any call; see notes.h.
#include "backend/cuda/ops/notes.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace ada::backend::cuda {
namespace {

float PowerOfTwo(int exponent) { return OfBits(static_cast<std::uint32_t>(exponent + 127) << 23); }

// From which magnitude on `shift` alone rounds, and how what lies below is rounded.
void SetSmallValues(const NumberFormat& f, NumberGrid& grid) {
  constexpr std::uint32_t kSmallestNormal = 0x800000u;
  const int lowest = grid.lowest_exponent, spacing = lowest - f.mantissa_bits;
  if (f.is_signed && lowest == -126) return;  // fp32's own subnormals: shift serves them as well
  grid.direct_min = grid.min_normal > kSmallestNormal ? grid.min_normal : kSmallestNormal;
  if (f.is_signed && lowest > -126 && spacing + 23 <= 127) grid.magic = PowerOfTwo(spacing + 23);
}

}  // namespace

NumberGrid GridOf(const NumberFormat& f) {
  NumberGrid grid;
  grid.exact = f == kFp32;
  grid.is_signed = f.is_signed;
  grid.e8m0 = !f.is_signed && f.mantissa_bits == 0 && f.bias == 127;
  grid.mantissa_bits = f.mantissa_bits;
  grid.lowest_exponent = (f.is_signed ? 1 : 0) - f.bias;
  grid.shift = 23 - f.mantissa_bits;
  grid.keep = ~0u << grid.shift;
  grid.tie = grid.shift == 0 || f.mantissa_bits == 0 ? 0 : 1;
  if (grid.shift != 0) grid.half_minus = (1u << (grid.shift - 1)) - grid.tie;
  grid.min_normal = BitsOf(static_cast<float>(f.smallest_normal()));
  grid.below_min = BitsOf(static_cast<float>(f.smallest_subnormal()));
  grid.largest = BitsOf(static_cast<float>(f.largest()));
  grid.overflow_min = BitsOf(OverflowThreshold(f));
  grid.over = f.saturate || !f.has_nan ? grid.largest : f.has_inf ? kInfinityBits : 0x7fc00000u;
  if (!f.has_nan) grid.nan_keep = 0, grid.nan_flip = 0x80000000u;
  if (!f.has_negative_zero) grid.zero_sign = 0;
  grid.largest_value = f.largest();
  SetSmallValues(f, grid);
  return grid;
}

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
  if (!tensor) return;
  ADA_CHECK(style.own_scale == nullptr || tensor.storage == Storage::kF32);
  ADA_CHECK(tensor.shape.numel() <= std::numeric_limits<std::uint32_t>::max());
  per_image_ = tensor.shape.per_image();
  grid_ = GridOf(format_);
  MakeRoom(context, tensor.shape.numel(), most_blocks);
}

RoundingStats::RoundingStats(const Context& context, const Gradient& g, int most_blocks)
    : RoundingStats(context, g.tensor, g.style, g.stats, g.moments, most_blocks) {
  scale_ = g.scale, size_only_ = !g.all_moments;
  if (g.stats != nullptr) return;
  style_ = RoundingStyle{};
  // In fp32 they may lie on a grid that has a scale of its own. 16 bits hold what they hold.
  if (g.tensor.storage == Storage::kF32) format_ = kFp32, grid_ = NumberGrid{};
}

RoundingStats RoundingStats::OfParameter(const Context& context, const NumberFormat& format,
                                         Storage storage, std::int64_t numel,
                                         const RoundingStyle& style, TensorStats* stats,
                                         TensorMoments* moments) {
  ADA_CHECK(style.own_scale == nullptr || storage == Storage::kF32);
  RoundingStats notes;
  notes.stream_ = &context.stream, notes.pass_ = context.pass;
  notes.format_ = format, notes.storage_ = storage, notes.style_ = style;
  notes.stats_ = stats, notes.moments_ = moments;
  notes.values_ = numel;
  notes.grid_ = GridOf(format);
  notes.MakeRoom(context, numel, 0);
  return notes;
}

void RoundingStats::MakeRoom(const Context& context, std::int64_t values, int most_blocks) {
  if (!wanted()) return;
  const int blocks = std::max(most_blocks, FlatBlocksOf(values).blocks);
  totals_ = context.Allocate<NoteTotals>(1);
  const NoteLevel most = stats_ != nullptr ? NoteLevel::kCounts : NoteLevel::kMoments;
  block_sums_ = context.Allocate<double>(std::int64_t{NoteSums(most)} * blocks);
}

NoteLevel RoundingStats::Level(const Pass& pass) const {
  if (!wanted()) return NoteLevel::kNone;
  if (pass.count && stats_ != nullptr && (style_.counted || TakesBins(pass)))
    return NoteLevel::kCounts;
  return moments_ != nullptr ? NoteLevel::kMoments : NoteLevel::kLargest;
}

Rounding RoundingStats::For(const Pass& pass, std::int64_t values) const {
  Rounding rounding;
  rounding.grid = grid_;
  rounding.pass = pass_;
  if (style_.own_scale != nullptr) rounding.own_scale = &style_.own_scale->scale;
  rounding.stochastic = style_.stochastic && pass.training, rounding.stream = style_.stream;
  rounding.values = ValuesOf(pass, values);
  rounding.scale_from = scale_from_, rounding.scale_to = scale_;
  if (!wanted()) return rounding;
  rounding.totals = totals_, rounding.block_sums = block_sums_;
  rounding.stats = stats_, rounding.moments = moments_;
  rounding.carried = scale_from_ != nullptr ? scale_from_ : scale_;
  if (TakesBins(pass)) rounding.bins = style_.bins;
  rounding.full = pass.count && style_.counted;
  rounding.size_only = size_only_;
  // As on a CPU: fp32 sums where squares cannot leave its range.
  rounding.narrow =
      per_image_ > 0 && storage_ == Storage::kF16 && Level(pass) == NoteLevel::kMoments;
  return rounding;
}

void RoundingStats::Take(const Pass& pass, PlanNotes* noted) const {
  ADA_CHECK(Level(pass) == NoteLevel::kLargest && scale_from_ == nullptr);
  ForEach(*stream_, 1, StorePlanNotes{noted, ValuesOf(pass, 0), stats_});
}

void RoundingStats::Count(const Pass& pass, const TensorSpan& in, std::int64_t values) const {
  const Rounding how = For(pass, values);
  const FlatBlocks flat = FlatBlocksOf(how.values);
  AtLevel(pass, [&](auto level) {
    using Kernel = CountValuesKernel<decltype(level)::value>;
    if constexpr (decltype(level)::value != NoteLevel::kNone)
      Launch(*stream_, Kernel{in, how, how.values, flat.size}, flat.blocks);
  });
}

}  // namespace ada::backend::cuda
