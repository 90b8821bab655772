// See accumulated_chunks.h.
//
//   forward, data:  batch --codes--> rows of pixels, some at a time --+
//                   weights --codes--> panels of 16 outputs ----------+--> sums --> y, dx
//   weights:        dy --codes--> [pixels, some channels] --+
//                   x  --codes--> panels of 16 columns -----+--> sums --> dw
#include "backend/cpu/matmul/plan/accumulated_chunks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/rounding/blocks.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

using scaling::AccumulatorCounts;
using scaling::Product;

// Rows that meet a panel together; of dw, channels of a slice.
constexpr std::int64_t kRowsAtOnce = 32, kSliceRows = 64;

// Products of a sum that are taken at once: whole groups.
std::int64_t StepOf(const scaling::Accumulator& rule) {
  constexpr std::int64_t kStep = 256;
  return rule.group * std::max<std::int64_t>(1, kStep / rule.group);
}

// The running sums of some rows with one panel.
class PanelSums {
 public:
  static std::size_t bytes(std::int64_t rows) {
    return static_cast<std::size_t>(rows * kPanel) * (2 * sizeof(float) + 2 * sizeof(double));
  }
  // blocks: codes are added block by block (EndBlock), and nothing is promoted in between.
  PanelSums(const scaling::Accumulator& rule, std::byte* memory, std::int64_t rows, bool counts,
            bool blocks)
      : rule_(rule), rows_(rows), counts_(counts), blocks_(blocks) {
    if (blocks) rule_.promote = 0;
    const std::int64_t values = rows * kPanel;
    part_ = reinterpret_cast<float*>(memory), main_ = part_ + values;
    exact_ = reinterpret_cast<double*>(main_ + values), magnitudes_ = exact_ + values;
  }
  void Begin() {
    const std::int64_t values = rows_ * kPanel;
    std::fill_n(part_, 2 * values, 0.0f);
    if (counts_) std::fill_n(exact_, 2 * values, 0.0);
    if (counts_ && blocks_) totals_.assign(static_cast<std::size_t>(2 * values), 0.0);
    found_ = AccumulatorCounts();
  }
  // main = fma(part, scale of the row * scale of the lane, main), for all sums.
  void EndBlock(const float* of_rows, std::int64_t row_step, const float* of_lanes) {
    for (std::int64_t i = 0; i < rows_ * kPanel; ++i) {
      const float scale = of_rows[i / kPanel * row_step] * of_lanes[i % kPanel];
      main_[i] = std::fma(part_[i], scale, main_[i]);
      part_[i] = 0;
      if (!counts_) continue;
      const auto at = static_cast<std::size_t>(2 * i);
      totals_[at] += exact_[i] * static_cast<double>(scale);
      totals_[at + 1] += magnitudes_[i] * std::abs(static_cast<double>(scale));
      exact_[i] = magnitudes_[i] = 0;
    }
  }
  // The arguments but for the matrices.
  AccumulateArgs Args(std::int64_t first, std::int64_t k, bool vectors) {
    AccumulateArgs args;
    args.rule = rule_, args.rows = rows_, args.k = k, args.first = first, args.vectors = vectors;
    args.part = part_, args.main = main_;
    if (counts_) args.exact = exact_, args.magnitudes = magnitudes_, args.counts = &found_;
    return args;
  }
  // take(row, lane, sum) for the first `lanes` of each row.
  template <class Take>
  void End(std::int64_t lanes, AccumulatorCounts* counts, Take&& take) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t i = row * kPanel + lane;
        const float sum = blocks_ ? main_[i] : rule_.promote > 0 ? main_[i] + part_[i] : part_[i];
        const auto at = static_cast<std::size_t>(2 * i);
        if (counts_ && blocks_)
          found_.Take(sum, totals_[at], totals_[at + 1]);
        else if (counts_)
          found_.Take(sum, exact_[i], magnitudes_[i]);
        take(row, lane, sum);
      }
    }
    if (counts_) counts->Add(found_);
  }

 private:
  scaling::Accumulator rule_;
  std::int64_t rows_;
  bool counts_, blocks_;
  std::vector<double> totals_;  // with the scales of blocks: exact sums, and of magnitudes
  double *exact_, *magnitudes_;
  float *part_, *main_;
  AccumulatorCounts found_;
};

}  // namespace

AccumulatedChunks::AccumulatedChunks(const Context& context, const MatmulSpec& spec,
                                     const MatmulGeometry& geometry, WeightCopies& weights,
                                     const BatchOperands& operands, MatmulRounding& rounding,
                                     int most, std::size_t offset,
                                     std::unique_ptr<ChunkMatmul> others)
    : context_(context),
      spec_(spec),
      window_(geometry),
      transposed_(geometry.transposed),
      weights_(weights),
      operands_(operands),
      rounding_(rounding),
      most_(most),
      offset_(offset),
      others_(std::move(others)) {
  using enum Operand;
  const Toward forward = transposed_ ? Toward::kBig : Toward::kSmall;
  const Toward data = transposed_ ? Toward::kSmall : Toward::kBig;
  if (Takes(Product::kForward))
    forward_.emplace(RowsOf(Product::kForward, forward, kForwardX, kForwardW));
  if (Takes(Product::kDx) && spec.dx) data_.emplace(RowsOf(Product::kDx, data, kDxDy, kDxW));
  std::size_t scratch = 0;
  for (const std::optional<Rows>* rows : {&forward_, &data_}) {
    if (!*rows) continue;
    bytes_ += static_cast<std::ptrdiff_t>((*rows)->panels.bytes());
    scratch = std::max(scratch, RowBytes(**rows));
  }
  context_.scratch.CountOwn(bytes_);
  if (Takes(Product::kDw) && spec.dy) {
    dw_x_ = CodesOfOperand(spec, kDwX), dw_dy_ = CodesOfOperand(spec, kDwDy);
    const bool differ = dw_x_.block != 0 && dw_dy_.block != 0 && dw_x_.block != dw_dy_.block;
    if ((dw_x_.block != 0 || dw_dy_.block != 0) && (differ || !window_.pointwise()))
      throw ConfigError("precision.accumulate: layer " + spec.layer +
                        ": blocks of dw.x and dw.dy with scales in fp32 do not meet value by value "
                        "under a window; leave dw out (accumulate: {dw: none})");
    scratch = std::max(scratch, SliceBytes());
  }
  context_.scratch.Reserve(offset_ + scratch, 0);
  const auto chunks = static_cast<std::size_t>(BlockCount(spec.x.shape.n, most));
  parts_ = {chunks, chunks, static_cast<std::size_t>(weight_slices())};
  for (std::size_t i = 0; i < scaling::kProducts; ++i)
    counts_[i].resize((1 + spec.sums[i].judged.size()) * parts_[i]);
}

AccumulatedChunks::Rows AccumulatedChunks::RowsOf(Product product, Toward toward, Operand batch,
                                                  Operand weights) const {
  Rows rows{product,
            toward,
            CodesOfOperand(spec_, batch),
            CodesOfOperand(spec_, weights),
            WeightPanels(window_, toward),
            {}};
  const std::int64_t a = rows.of_batch.block, b = rows.of_weights.block;
  if (a != 0 && b != 0 && a != b)
    throw ConfigError("precision.accumulate: layer " + spec_.layer + ": " + NameOf(batch) +
                      " has blocks of " + std::to_string(a) + " values and " + NameOf(weights) +
                      " of " + std::to_string(b) + "; codes of both are added block by block");
  if (a != 0 || b != 0)
    rows.blocks = window_.BlocksOf(
        toward == Toward::kSmall ? window_.in_group() : window_.out_group(), std::max(a, b));
  return rows;
}

AccumulatedChunks::~AccumulatedChunks() { context_.scratch.CountOwn(-bytes_); }

void AccumulatedChunks::Prepare(std::int64_t images) { others_->Prepare(images); }

void AccumulatedChunks::Refresh() {
  others_->Refresh();
  for (std::optional<Rows>* made : {&forward_, &data_}) {
    if (!*made) continue;
    const WeightUse use = made == &forward_ ? WeightUse::kForward : WeightUse::kData;
    (*made)->panels.Pack(context_, (*made)->of_weights, weights_.plain(use), weights_.scales(use),
                         (*made)->blocks);
  }
}

// --- y and dx ------------------------------------------------------------------------------------

// Codes of the chunk, rows, running sums, then the result.
std::size_t AccumulatedChunks::RowBytes(const Rows& rows) const {
  const bool to_small = rows.toward == Toward::kSmall;
  const Shape &from = to_small ? window_.big() : window_.small(),
              &to = to_small ? window_.small() : window_.big();
  return BytesOfCodes(most_ * from.per_image()) + BytesOfCodes(kRowsAtOnce * rows.panels.k()) +
         PanelSums::bytes(kRowsAtOnce) +
         WholeLines(static_cast<std::size_t>(most_ * to.per_image()) * 4);
}

float* AccumulatedChunks::RowSums(const Rows& rows, const scaling::Accumulator& rule,
                                  AccumulatorCounts* counts, const Chunk& chunk,
                                  const TensorSpan& batch) {
  const bool to_small = rows.toward == Toward::kSmall;
  const Shape &from = to_small ? window_.big() : window_.small(),
              &to = to_small ? window_.small() : window_.big();
  const WeightPanels& panels = rows.panels;
  const AccumulateKernels& kernels = AccumulateKernelsOf(context_.kernels);
  std::byte* memory = context_.scratch.worker(chunk.worker) + offset_;
  const CodeBlock source = TakeCodes(memory, most_ * from.per_image());
  const CodeBlock taken = TakeCodes(memory, kRowsAtOnce * panels.k());
  std::byte* const sums_memory = memory;
  auto* out = reinterpret_cast<float*>(memory + PanelSums::bytes(kRowsAtOnce));
  const float* scales =
      operands_.ScalesOf(rows.product == Product::kForward ? Operand::kForwardX : Operand::kDxDy);
  if (scales != nullptr) scales += chunk.image * from.per_image();
  const int largest = ToCodes(context_, rows.of_batch, batch, chunk.images * from.per_image(),
                              source.values, source.exponents, scales);
  const bool vectors =
      FitVectors(rows.of_batch, rows.of_weights, largest, panels.largest(), panels.k());
  const std::int64_t k = panels.k(), step = StepOf(rule);
  const std::int64_t part = rule.promote > 0 ? rule.promote : k;  // of a block
  const std::int64_t pixels = to.h * to.w, all = chunk.images * pixels;
  const bool by_block = !rows.blocks.empty();
  const std::size_t blocks = by_block ? rows.blocks.size() - 1 : 0;
  const std::int64_t channels = to_small ? window_.in_group() : window_.out_group();
  std::vector<float> row_scales(kRowsAtOnce * blocks, rows.of_batch.inverse());
  for (std::int64_t first = 0; first < all; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, all - first);
    PanelSums sums(rule, sums_memory, count, counts != nullptr, by_block);
    for (std::int64_t group = 0; group < window_.groups(); ++group) {
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t image = (first + row) / pixels, pixel = (first + row) % pixels;
        GatherRow(window_, rows.toward, group, pixel, source.From(image * from.per_image()),
                  taken.From(row * k));
        for (std::size_t block = 0; scales != nullptr && block < blocks; ++block) {
          const auto [tap, channel] = window_.At(rows.blocks[block], channels);
          const std::int64_t met =
              to_small ? window_.InBig(pixel, tap) : window_.InSmall(pixel, tap);
          row_scales[static_cast<std::size_t>(row) * blocks + block] =
              met < 0
                  ? 0.0f
                  : scales[image * from.per_image() + met * from.c + group * channels + channel];
        }
      }
      for (std::int64_t panel = 0; panel < panels.panels(); ++panel) {
        sums.Begin();
        std::size_t block = 0;
        for (std::int64_t at = 0, end = 0; at < k; at = end) {
          end = std::min(at + step, k);
          if (by_block) end = std::min(at + part, rows.blocks[block + 1]);
          AccumulateArgs args = sums.Args(by_block ? 0 : at, end - at, vectors);
          args.a = taken.values + at, args.a_exponents = taken.exponents + at;
          args.a_row = k, args.a_step = 1;
          args.b = panels.values(group, panel) + at * kPanel;
          args.b_exponents = panels.exponents(group, panel) + at * kPanel;
          kernels.accumulate(args);
          if (!by_block) continue;
          sums.EndBlock(row_scales.data() + block, static_cast<std::int64_t>(blocks),
                        panels.scales(group, panel, block));
          if (end == rows.blocks[block + 1]) ++block;
        }
        const std::int64_t output = group * panels.outputs() + panel * kPanel;
        const std::int64_t lanes =
            std::min<std::int64_t>(kPanel, panels.outputs() - panel * kPanel);
        sums.End(lanes, counts, [&](std::int64_t row, std::int64_t lane, float sum) {
          out[(first + row) * to.c + output + lane] = sum;
        });
      }
    }
  }
  const float factor = by_block ? 1 : rows.of_batch.inverse() * rows.of_weights.inverse();
  if (factor != 1)
    for (std::int64_t i = 0; i < all * to.c; ++i) out[i] *= factor;
  return out;
}

void AccumulatedChunks::JudgeRows(const Rows& rows, const Chunk& chunk, const TensorSpan& batch) {
  if (!chunk.pass.bins) return;
  const std::vector<JudgedSums>& judged = Judged(rows.product);
  for (std::size_t i = 0; i < judged.size(); ++i)
    RowSums(rows, judged[i].rule, &CountsAt(rows.product, 1 + i, chunk.image / most_), chunk,
            batch);
}

bool AccumulatedChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  if (forward_) JudgeRows(*forward_, chunk, x);
  if (!Makes(Product::kForward)) return others_->Forward(chunk, x);
  const bool counts = Counts(Product::kForward, chunk.pass);
  float* y =
      RowSums(*forward_, *spec_.sums[0].rule,
              counts ? &CountsAt(Product::kForward, 0, chunk.image / most_) : nullptr, chunk, x);
  const float factor = rounding_.y_factor();
  const Shape& shape = spec_.y.shape;
  const std::int64_t pixels = chunk.images * shape.h * shape.w;
  if (factor != 1 || spec_.b) {
    const float* bias = spec_.b ? spec_.b.f32() : nullptr;
    float* values = y;
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel, values += shape.c)
      for (std::int64_t c = 0; c < shape.c; ++c)
        values[c] = values[c] * factor + (bias != nullptr ? bias[c] : 0.0f);
  }
  rounding_.RoundY(chunk, y);
  return true;
}

bool AccumulatedChunks::DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) {
  if (data_) JudgeRows(*data_, chunk, dy);
  if (!Makes(Product::kDx)) return others_->DataGradient(chunk, dy, alpha);
  const bool counts = Counts(Product::kDx, chunk.pass);
  float* dx =
      RowSums(*data_, *spec_.sums[1].rule,
              counts ? &CountsAt(Product::kDx, 0, chunk.image / most_) : nullptr, chunk, dy);
  const float factor = rounding_.dx_factor();
  if (factor != 1) {
    const std::int64_t values = chunk.images * spec_.x.shape.per_image();
    for (std::int64_t i = 0; i < values; ++i) dx[i] *= factor;
  }
  rounding_.RoundDx(chunk, dx, alpha);
  return true;
}

// --- dw ------------------------------------------------------------------------------------------

bool AccumulatedChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x,
                                       const TensorSpan& dy, bool first, float* partial) {
  ADA_CHECK(!Makes(Product::kDw));
  return others_->WeightGradient(chunk, x, dy, first, partial);
}

// By group, then by rows, then by panel of columns.
std::int64_t AccumulatedChunks::weight_slices() const {
  const std::int64_t rows = QuotientUp(window_.out_group(), kSliceRows);
  const std::int64_t panels = QuotientUp(window_.taps() * window_.in_group(), kPanel);
  return window_.groups() * rows * panels;
}
int AccumulatedChunks::slices() const {
  return Makes(Product::kDw) ? static_cast<int>(weight_slices()) : others_->slices();
}
int AccumulatedChunks::judged_slices(const Pass& pass) const {
  if (!pass.bins) return 0;
  return static_cast<int>(weight_slices()) * static_cast<int>(Judged(Product::kDw).size());
}
void AccumulatedChunks::JudgeSlice(int slice, const Chunk& batch, const TensorSpan& x,
                                   const TensorSpan& dy) {
  const std::int64_t slices = weight_slices();
  const auto rule = static_cast<std::size_t>(slice / slices);
  SumSlice(Judged(Product::kDw)[rule].rule, slice % slices,
           &CountsAt(Product::kDw, 1 + rule, slice % slices), batch, x, dy, nullptr);
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
  if (!Makes(Product::kDw)) return others_->WeightSlice(slice, batch, x, dy, partial);
  const bool counts = Counts(Product::kDw, batch.pass);
  SumSlice(*spec_.sums[scaling::IndexOf(Product::kDw)].rule, slice,
           counts ? &CountsAt(Product::kDw, 0, slice) : nullptr, batch, x, dy, partial);
}

// Values are copied as they are stored, and widened and brought to codes together.
void AccumulatedChunks::SumSlice(const scaling::Accumulator& rule, std::int64_t slice,
                                 AccumulatorCounts* counts, const Chunk& batch, const TensorSpan& x,
                                 const TensorSpan& dy, float* partial) {
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

  const std::int64_t block = std::max(dw_x_.block, dw_dy_.block);
  const std::int64_t step = block == 0          ? StepOf(rule)
                            : rule.promote == 0 ? block
                                                : std::min<std::int64_t>(block, rule.promote);
  ADA_CHECK(block == 0 || (block % step == 0 && block <= scaling::kMostOfGroup));
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
  PanelSums sums(rule, memory, rows, counts != nullptr, block != 0);
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
  const bool one_run =
      window_.channels_lie_together() && tap[0] == tap[static_cast<std::size_t>(lanes - 1)];
  const std::size_t small_bytes = BytesOf(of_small.storage), big_bytes = BytesOf(of_big.storage);
  const std::int64_t pixels = small.h * small.w, all = batch.images * pixels;
  const auto* from_small = static_cast<const std::byte*>(of_small.data);
  const auto* from_big = static_cast<const std::byte*>(of_big.data);
  for (std::int64_t at = 0; at < all; at += step) {
    const std::int64_t count = std::min(step, all - at);
    std::memset(b_stored, 0, static_cast<std::size_t>(count * kPanel) * big_bytes);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t image = (at + i) / pixels, pixel = (at + i) % pixels;
      std::memcpy(a_stored + static_cast<std::size_t>(i * rows) * small_bytes,
                  from_small + static_cast<std::size_t>((at + i) * small.c + group * outs + row) *
                                   small_bytes,
                  static_cast<std::size_t>(rows) * small_bytes);
      std::byte* to = b_stored + static_cast<std::size_t>(i * kPanel) * big_bytes;
      const auto source = [&](std::size_t lane) {
        const std::int64_t met = window_.InBig(pixel, tap[lane]);
        return met < 0 ? nullptr
                       : from_big + static_cast<std::size_t>(image * big.per_image() + met * big.c +
                                                             group * ins + channel[lane]) *
                                        big_bytes;
      };
      if (one_run) {
        if (const std::byte* found = source(0))
          std::memcpy(to, found, static_cast<std::size_t>(lanes) * big_bytes);
        continue;
      }
      for (std::size_t lane = 0; lane < static_cast<std::size_t>(lanes); ++lane)
        if (const std::byte* found = source(lane))
          std::memcpy(to + lane * big_bytes, found, big_bytes);
    }
    // Where blocks have scales, all values of a step share those of its first pixel, by row and
    // lane.
    std::vector<float> a_scales, b_scales;
    if (small_scales != nullptr || big_scales != nullptr) {
      a_scales.assign(static_cast<std::size_t>(count * rows), small_codes.inverse());
      b_scales.assign(static_cast<std::size_t>(count * kPanel), big_codes.inverse());
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t image = (at + i) / pixels, pixel = (at + i) % pixels;
        for (std::int64_t r = 0; small_scales != nullptr && r < rows; ++r)
          a_scales[static_cast<std::size_t>(i * rows + r)] =
              small_scales[(at + i) * small.c + group * outs + row + r];
        for (std::int64_t l = 0; big_scales != nullptr && l < lanes; ++l) {
          const auto lane = static_cast<std::size_t>(l);
          b_scales[static_cast<std::size_t>(i * kPanel + l)] =
              big_scales[image * big.per_image() + window_.InBig(pixel, tap[lane]) * big.c +
                         group * ins + channel[lane]];
        }
      }
    }
    const int largest_a =
        ToCodes(context_, small_codes, {a_stored, of_small.storage}, count * rows, a.values,
                a.exponents, small_scales != nullptr ? a_scales.data() : nullptr);
    const int largest_b =
        ToCodes(context_, big_codes, {b_stored, of_big.storage}, count * kPanel, b.values,
                b.exponents, big_scales != nullptr ? b_scales.data() : nullptr);
    AccumulateArgs args = sums.Args(block != 0 ? 0 : at, count,
                                    FitVectors(small_codes, big_codes, largest_a, largest_b, all));
    args.a = a.values, args.a_exponents = a.exponents, args.a_row = 1, args.a_step = rows;
    args.b = b.values, args.b_exponents = b.exponents;
    kernels.accumulate(args);
    if (block != 0) sums.EndBlock(a_scales.data(), 1, b_scales.data());
  }
  const float factor = block != 0 ? 1 : dw_x_.inverse() * dw_dy_.inverse();
  sums.End(lanes, counts, [&](std::int64_t r, std::int64_t lane, float sum) {
    const auto l = static_cast<std::size_t>(lane);
    if (partial != nullptr)
      partial[window_.Weight(group, row + r, channel[l], tap[l])] = sum * factor;
  });
}

bool AccumulatedChunks::few_terms_are_inexact() const {
  return !Makes(Product::kDw) && others_->few_terms_are_inexact();
}

std::int64_t AccumulatedChunks::partial_values() const {
  return Makes(Product::kDw) ? spec_.w.shape.numel() : others_->partial_values();
}

// There is one, of the whole batch. db is summed from dy by the op.
bool AccumulatedChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  if (!Makes(Product::kDw)) return others_->Sum(partials, count, dw, db);
  ADA_CHECK(count == 1);
  std::copy_n(partials, spec_.w.shape.numel(), dw);
  return true;
}

void AccumulatedChunks::AddPlain(const float* dw, const float* db, bool first,
                                 float* partial) const {
  ADA_CHECK(!Makes(Product::kDw));
  others_->AddPlain(dw, db, first, partial);
}

// The parts start anew.
void AccumulatedChunks::Total(Product product, std::size_t rule, AccumulatorCounts& to) {
  to = AccumulatorCounts();
  for (std::size_t part = 0; part < parts_[scaling::IndexOf(product)]; ++part) {
    AccumulatorCounts& counts = CountsAt(product, rule, static_cast<std::int64_t>(part));
    to.Add(counts);
    counts = AccumulatorCounts();
  }
}

void AccumulatedChunks::Finish(Product product, const Pass& pass) {
  const auto at = scaling::IndexOf(product);
  if (Makes(product) && Counts(product, pass)) Total(product, 0, *spec_.sums[at].counts);
  if (!pass.bins) return;
  for (std::size_t i = 0; i < spec_.sums[at].judged.size(); ++i)
    Total(product, 1 + i, *spec_.sums[at].judged[i].counts);
}
void AccumulatedChunks::FinishForward(const Pass& pass) { Finish(Product::kForward, pass); }
void AccumulatedChunks::FinishBackward(const Pass& pass) {
  Finish(Product::kDx, pass);
  Finish(Product::kDw, pass);
}

}  // namespace ada::backend::cpu
