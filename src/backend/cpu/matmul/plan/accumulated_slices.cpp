// Sums of dw, which run through all pixels of a batch:
//
//   dy --codes--> [pixels, some channels] --+
//   x  --codes--> panels of 16 columns -----+--> sums --> dw
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "backend/cpu/matmul/plan/accumulated_chunks.h"
#include "backend/cpu/matmul/plan/panel_sums.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

constexpr std::int64_t kSliceRows = 64;  // channels of a slice

}  // namespace

bool AccumulatedChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x,
                                       const TensorSpan& dy, bool first, float* partial) {
  ADA_CHECK(!Makes(scaling::LayerMatmul::kDw));
  return others_->WeightGradient(chunk, x, dy, first, partial);
}

// By group, then by rows, then by panel of columns.
std::int64_t AccumulatedChunks::weight_slices() const {
  const std::int64_t rows = QuotientUp(window_.out_group(), kSliceRows);
  const std::int64_t panels = QuotientUp(window_.taps() * window_.in_group(), kPanel);
  return window_.groups() * rows * panels;
}
int AccumulatedChunks::slices() const {
  return Makes(scaling::LayerMatmul::kDw) ? static_cast<int>(weight_slices()) : others_->slices();
}
int AccumulatedChunks::judged_slices(const Pass& pass) const {
  if (!pass.bins) return 0;
  return static_cast<int>(weight_slices()) *
         static_cast<int>(Judged(scaling::LayerMatmul::kDw).size());
}
void AccumulatedChunks::JudgeSlice(int slice, const Chunk& batch, const TensorSpan& x,
                                   const TensorSpan& dy) {
  const std::int64_t slices = weight_slices();
  const auto rule = static_cast<std::size_t>(slice / slices);
  SumSlice(Judged(scaling::LayerMatmul::kDw)[rule].rule, slice % slices,
           &CountsAt(scaling::LayerMatmul::kDw, 1 + rule, slice % slices), batch, x, dy, nullptr);
}

std::size_t AccumulatedChunks::SliceBytes() const {
  const std::int64_t step = std::max<std::int64_t>(256, scaling::kMostOfGroup);
  const auto stored = [&](std::int64_t width) {
    return WholeLines(static_cast<std::size_t>(step * width) * 4);
  };
  return BytesOfCodes(step * kSliceRows) + BytesOfCodes(step * kPanel) + stored(kSliceRows) +
         stored(kPanel) + PanelSums::bytes(kSliceRows);
}

void AccumulatedChunks::WeightSlice(int slice, const Chunk& batch, const TensorSpan& x,
                                    const TensorSpan& dy, float* partial) {
  if (!Makes(scaling::LayerMatmul::kDw)) return others_->WeightSlice(slice, batch, x, dy, partial);
  const bool counts = Counts(scaling::LayerMatmul::kDw, batch.pass);
  SumSlice(*spec_.sums[scaling::IndexOf(scaling::LayerMatmul::kDw)].rule, slice,
           counts ? &CountsAt(scaling::LayerMatmul::kDw, 0, slice) : nullptr, batch, x, dy,
           partial);
}

// Values are copied as they are stored, and widened and brought to codes together.
void AccumulatedChunks::SumSlice(const scaling::Accumulator& rule, std::int64_t slice,
                                 scaling::AccumulatorCounts* counts, const Chunk& batch,
                                 const TensorSpan& x, const TensorSpan& dy, float* partial) {
  const AccumulateKernels& kernels = AccumulateKernelsOf(context_.kernels);
  const Shape &big = window_.big(), &small = window_.small();
  const std::int64_t outs = window_.out_group(), ins = window_.in_group();
  const std::int64_t columns = window_.taps() * ins;
  const std::int64_t panels = QuotientUp(columns, kPanel);
  const std::int64_t parts = QuotientUp(outs, kSliceRows);
  const std::int64_t panel = slice % panels, part = slice / panels % parts;
  const std::int64_t group = slice / panels / parts;
  const std::int64_t row = part * kSliceRows, rows = std::min(kSliceRows, outs - row);
  const std::int64_t lanes = std::min<std::int64_t>(kPanel, columns - panel * kPanel);
  // In a transposed convolution x is the side that its convolution makes.
  const TensorSpan &of_small = transposed_ ? x : dy, &of_big = transposed_ ? dy : x;
  const CodesOf &small_codes = transposed_ ? dw_x_ : dw_dy_,
                &big_codes = transposed_ ? dw_dy_ : dw_x_;

  const bool by_block = dw_x_.in_blocks() || dw_dy_.in_blocks();
  const std::int64_t step = StepOf(rule);
  const float* x_scales = operands_.ScalesOf(Operand::kDwX);
  const float* dy_scales = operands_.ScalesOf(Operand::kDwDy);
  const float *small_scales = transposed_ ? x_scales : dy_scales,
              *big_scales = transposed_ ? dy_scales : x_scales;
  std::byte* memory = context_.scratch.worker(batch.worker) + offset_;
  const CodeBlock a = TakeCodes(memory, step * kSliceRows), b = TakeCodes(memory, step * kPanel);
  std::byte* const a_stored = memory;
  std::byte* const b_stored =
      a_stored + WholeLines(static_cast<std::size_t>(step * kSliceRows) * 4);
  memory = b_stored + WholeLines(static_cast<std::size_t>(step * kPanel) * 4);
  PanelSums sums(rule, memory, rows, counts != nullptr, by_block);
  sums.Begin();

  // The tap and channel of each lane.
  std::array<std::int64_t, kPanel> tap{}, channel{};
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    const std::int64_t column = panel * kPanel + lane;
    tap[static_cast<std::size_t>(lane)] =
        window_.channels_lie_together() ? column / ins : column % window_.taps();
    channel[static_cast<std::size_t>(lane)] =
        window_.channels_lie_together() ? column % ins : column / window_.taps();
  }
  const std::size_t small_bytes = BytesOf(of_small.storage), big_bytes = BytesOf(of_big.storage);
  const std::int64_t pixels = small.h * small.w, all = batch.images * pixels;
  const auto* from_small = static_cast<const std::byte*>(of_small.data);
  const auto* from_big = static_cast<const std::byte*>(of_big.data);
  // Where the lane finds its value for the pixel of number `at`; -1: there is none.
  const auto big_at = [&](std::int64_t at, std::int64_t lane) {
    const auto l = static_cast<std::size_t>(lane);
    const std::int64_t met = window_.InBig(at % pixels, tap[l]);
    return met < 0 ? -1 : at / pixels * big.per_image() + met * big.c + group * ins + channel[l];
  };
  const auto small_at = [&](std::int64_t at) { return at * small.c + group * outs + row; };
  // Scales of `count` pixels, by row and lane: those of tensors, or of blocks and rows.
  std::vector<float> a_scales, b_scales;
  const auto find_scales = [&](std::int64_t first, std::int64_t count) {
    a_scales.assign(static_cast<std::size_t>(count * rows), small_codes.inverse());
    b_scales.assign(static_cast<std::size_t>(count * kPanel), big_codes.inverse());
    for (std::int64_t i = 0; i < count; ++i) {
      if (small_scales != nullptr)
        std::copy_n(small_scales + small_at(first + i), rows, a_scales.begin() + i * rows);
      for (std::int64_t lane = 0; big_scales != nullptr && lane < lanes; ++lane)
        if (const std::int64_t found = big_at(first + i, lane); found >= 0)
          b_scales[static_cast<std::size_t>(i * kPanel + lane)] = big_scales[found];
    }
  };
  // Adds pixels first ... end - 1 of lanes from ... to - 1, which go on from `begin`.
  const auto add = [&](std::int64_t begin, std::int64_t first, std::int64_t end, std::int64_t from,
                       std::int64_t to) {
    const std::int64_t count = end - first;
    const bool one_run =
        window_.channels_lie_together() &&
        tap[static_cast<std::size_t>(from)] == tap[static_cast<std::size_t>(to - 1)];
    std::memset(b_stored, 0, static_cast<std::size_t>(count * kPanel) * big_bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(a_stored + static_cast<std::size_t>(i * rows) * small_bytes,
                  from_small + static_cast<std::size_t>(small_at(first + i)) * small_bytes,
                  static_cast<std::size_t>(rows) * small_bytes);
      std::byte* to_lanes = b_stored + static_cast<std::size_t>(i * kPanel) * big_bytes;
      for (std::int64_t lane = from; lane < to; lane += one_run ? to - from : 1)
        if (const std::int64_t found = big_at(first + i, lane); found >= 0)
          std::memcpy(to_lanes + static_cast<std::size_t>(lane) * big_bytes,
                      from_big + static_cast<std::size_t>(found) * big_bytes,
                      static_cast<std::size_t>(one_run ? to - from : 1) * big_bytes);
    }
    const bool scaled = small_scales != nullptr || big_scales != nullptr;
    if (scaled) find_scales(first, count);
    const int largest_a =
        ToCodes(context_, small_codes, {a_stored, of_small.storage}, count * rows, a.values,
                a.exponents, small_scales != nullptr ? a_scales.data() : nullptr);
    const int largest_b =
        ToCodes(context_, big_codes, {b_stored, of_big.storage}, count * kPanel, b.values,
                b.exponents, big_scales != nullptr ? b_scales.data() : nullptr);
    AccumulateArgs args = sums.Args(first - begin, count,
                                    FitVectors(small_codes, big_codes, largest_a, largest_b, all));
    args.a = a.values, args.a_exponents = a.exponents, args.a_row = 1, args.a_step = rows;
    args.b = b.values, args.b_exponents = b.exponents;
    kernels.accumulate(args);
  };
  // The end of the pixels from `begin` on that share a block of either operand at the lane's tap.
  const auto end_of_blocks = [&](std::int64_t begin, std::int64_t lane) {
    std::int64_t end = rule.promote > 0 ? std::min(begin + rule.promote, all) : all;
    if (small_codes.in_blocks())
      end = std::min(end, (begin / small_codes.block + 1) * small_codes.block);
    if (!big_codes.in_blocks()) return end;
    std::int64_t block = -1;  // padding is of no block
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t met = window_.InBig(at % pixels, tap[static_cast<std::size_t>(lane)]);
      if (met < 0) continue;
      const std::int64_t image = at / pixels;
      const std::int64_t own =
          (window_.is_linear() ? image : image * big.h * big.w + met) / big_codes.block;
      if (block >= 0 && own != block) return at;
      block = own;
    }
    return end;
  };
  // Lanes of one tap go through the same blocks.
  for (std::int64_t from = 0, to = 0; from < lanes; from = to) {
    to = lanes;
    for (std::int64_t lane = from; by_block && lane < to; ++lane)
      if (!window_.is_linear() &&
          tap[static_cast<std::size_t>(lane)] != tap[static_cast<std::size_t>(from)])
        to = lane;
    for (std::int64_t begin = 0, end = 0; begin < all; begin = end) {
      end = by_block ? end_of_blocks(begin, from) : all;
      for (std::int64_t first = begin; first < end; first += step)
        add(begin, first, std::min(first + step, end), from, to);
      if (!by_block) continue;
      // Padding has the scale of what it lies beside: its sums are zero.
      find_scales(begin, end - begin);
      for (std::int64_t i = 1; i < end - begin; ++i)
        for (std::int64_t lane = from; lane < to; ++lane)
          if (big_at(begin + i, lane) >= 0)
            b_scales[static_cast<std::size_t>(lane)] =
                b_scales[static_cast<std::size_t>(i * kPanel + lane)];
      sums.EndBlock([&](std::int64_t r, std::int64_t lane) {
        return a_scales[static_cast<std::size_t>(r)] * b_scales[static_cast<std::size_t>(lane)];
      });
    }
  }
  // Rows along the sum: any pixel has their scales.
  const bool by_line = !by_block && (small_scales != nullptr || big_scales != nullptr);
  const float factor = by_block || by_line ? 1 : dw_x_.inverse() * dw_dy_.inverse();
  sums.End(
      lanes, counts,
      [&](std::int64_t r, std::int64_t lane) {
        if (!by_line) return 1.0f;
        const float of_row =
            small_scales != nullptr ? small_scales[small_at(0) + r] : small_codes.inverse();
        const std::int64_t at =
            group * ins + channel[static_cast<std::size_t>(lane)] +
            (window_.is_linear() ? tap[static_cast<std::size_t>(lane)] * big.c : 0);
        return of_row * (big_scales != nullptr ? big_scales[at] : big_codes.inverse());
      },
      [&](std::int64_t r, std::int64_t lane, float sum) {
        const auto l = static_cast<std::size_t>(lane);
        if (partial != nullptr)
          partial[window_.Weight(group, row + r, channel[l], tap[l])] = sum * factor;
      });
}

}  // namespace ada::backend::cpu
