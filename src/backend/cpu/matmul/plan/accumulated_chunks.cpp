// See accumulated_chunks.h.
//
//   forward, data:  batch --codes--> rows of pixels, some at a time --+
//                   weights --codes--> panels of 16 outputs ----------+--> sums --> y, dx
//
// Sums of dw are in accumulated_slices.cpp.
#include "backend/cpu/matmul/plan/accumulated_chunks.h"

#include <algorithm>

#include "backend/cpu/matmul/plan/panel_sums.h"
#include "backend/cpu/rounding/blocks.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

using scaling::AccumulatorCounts;
using scaling::LayerMatmul;

constexpr std::int64_t kRowsAtOnce = 32;  // that meet a panel together

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
  if (Takes(LayerMatmul::kForward))
    forward_.emplace(RowsOf(LayerMatmul::kForward, forward, kForwardX, kForwardW));
  if (Takes(LayerMatmul::kDx) && spec.dx)
    data_.emplace(RowsOf(LayerMatmul::kDx, data, kDxDy, kDxW));
  std::size_t scratch = 0;
  for (const std::optional<Rows>* rows : {&forward_, &data_}) {
    if (!*rows) continue;
    bytes_ += static_cast<std::ptrdiff_t>((*rows)->panels.bytes());
    scratch = std::max(scratch, RowBytes(**rows));
  }
  context_.scratch.CountOwn(bytes_);
  if (Takes(LayerMatmul::kDw) && spec.dy) {
    dw_x_ = CodesOfOperand(spec, kDwX), dw_dy_ = CodesOfOperand(spec, kDwDy);
    scratch = std::max(scratch, SliceBytes());
  }
  context_.scratch.Reserve(offset_ + scratch, 0);
  const auto chunks = static_cast<std::size_t>(BlockCount(spec.x.shape.n, most));
  parts_ = {chunks, chunks, static_cast<std::size_t>(weight_slices())};
  for (std::size_t i = 0; i < scaling::kLayerMatmuls; ++i)
    counts_[i].resize((1 + spec.sums[i].judged.size()) * parts_[i]);
}

AccumulatedChunks::Rows AccumulatedChunks::RowsOf(LayerMatmul matmul, Toward toward, Operand batch,
                                                  Operand weights) const {
  Rows rows{matmul,
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
  if (a != 0 || b != 0) rows.blocks = window_.BlocksOf(toward, std::max(a, b));
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
  const float* scales = operands_.ScalesOf(rows.matmul == LayerMatmul::kForward ? Operand::kForwardX
                                                                                : Operand::kDxDy);
  if (scales != nullptr) scales += chunk.image * from.per_image();
  const int largest = ToCodes(context_, rows.of_batch, batch, chunk.images * from.per_image(),
                              source.values, source.exponents, scales);
  const bool vectors =
      FitVectors(rows.of_batch, rows.of_weights, largest, panels.largest(), panels.k());
  const std::int64_t k = panels.k(), step = StepOf(rule);
  const std::int64_t part = rule.promote > 0 ? rule.promote : k;  // of a block
  // Rows that meet the same weights: all pixels, or one of each image.
  const bool by_pixel = window_.IsByPixel(rows.toward);
  const std::int64_t pixels = to.h * to.w, own = by_pixel ? 1 : pixels, all = chunk.images * own;
  // Rows of one scale each that are whole sums: it is multiplied with these.
  const bool by_line =
      rows.blocks.size() == 2 && !rows.of_batch.in_blocks() && !rows.of_weights.in_blocks();
  const bool by_block = !rows.blocks.empty() && !by_line;
  const std::size_t blocks = rows.blocks.empty() ? 0 : rows.blocks.size() - 1;
  const std::int64_t channels = window_.channels(rows.toward);
  std::vector<float> row_scales(kRowsAtOnce * blocks, rows.of_batch.inverse());
  for (std::int64_t first = 0; first < all; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, all - first);
    PanelSums sums(rule, sums_memory, count, counts != nullptr, by_block);
    for (std::int64_t set = 0; set < panels.sets(); ++set) {
      const std::int64_t group = by_pixel ? 0 : set;
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t image = (first + row) / own, pixel = (first + row) % own;
        GatherRow(window_, rows.toward, group, pixel, source.From(image * from.per_image()),
                  taken.From(row * k));
        for (std::size_t block = 0; scales != nullptr && block < blocks; ++block) {
          const auto [tap, channel] = by_pixel
                                          ? AccumulatedWindow::TapAndChannel{0, rows.blocks[block]}
                                          : window_.At(rows.blocks[block], channels);
          const std::int64_t met =
              to_small ? window_.InBig(pixel, tap) : window_.InSmall(pixel, tap);
          row_scales[static_cast<std::size_t>(row) * blocks + block] =
              met < 0
                  ? 0.0f
                  : scales[image * from.per_image() + met * from.c + group * channels + channel];
        }
      }
      for (std::int64_t panel = 0; panel < panels.panels(); ++panel) {
        const std::int64_t output = group * panels.outputs() + panel * kPanel;
        const std::int64_t lanes =
            std::min<std::int64_t>(kPanel, panels.outputs() - panel * kPanel);
        const auto scale_of = [&](std::size_t of_block, std::int64_t row, std::int64_t lane) {
          return row_scales[static_cast<std::size_t>(row) * blocks + of_block] *
                 panels.scales(set, panel, of_block)[lane];
        };
        sums.Begin();
        std::size_t block = 0;
        for (std::int64_t at = 0, end = 0; at < k; at = end) {
          end = std::min(at + step, k);
          if (by_block) end = std::min(at + part, rows.blocks[block + 1]);
          AccumulateArgs args = sums.Args(by_block ? 0 : at, end - at, vectors);
          args.a = taken.values + at, args.a_exponents = taken.exponents + at;
          args.a_row = k, args.a_step = 1;
          args.b = panels.values(set, panel) + at * kPanel;
          args.b_exponents = panels.exponents(set, panel) + at * kPanel;
          kernels.accumulate(args);
          if (!by_block) continue;
          sums.EndBlock(
              [&](std::int64_t row, std::int64_t lane) { return scale_of(block, row, lane); });
          if (end == rows.blocks[block + 1]) ++block;
        }
        sums.End(
            lanes, counts,
            [&](std::int64_t row, std::int64_t lane) {
              return by_line ? scale_of(0, row, lane) : 1.0f;
            },
            [&](std::int64_t row, std::int64_t lane, float sum) {
              const std::int64_t to_row = by_pixel ? (first + row) * pixels + set : first + row;
              out[to_row * to.c + output + lane] = sum;
            });
      }
    }
  }
  const float factor =
      rows.blocks.empty() ? rows.of_batch.inverse() * rows.of_weights.inverse() : 1;
  if (factor != 1)
    for (std::int64_t i = 0; i < chunk.images * pixels * to.c; ++i) out[i] *= factor;
  return out;
}

void AccumulatedChunks::JudgeRows(const Rows& rows, const Chunk& chunk, const TensorSpan& batch) {
  if (!chunk.pass.bins) return;
  const std::vector<JudgedSums>& judged = Judged(rows.matmul);
  for (std::size_t i = 0; i < judged.size(); ++i)
    RowSums(rows, judged[i].rule, &CountsAt(rows.matmul, 1 + i, chunk.image / most_), chunk, batch);
}

bool AccumulatedChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  if (forward_) JudgeRows(*forward_, chunk, x);
  if (!Makes(LayerMatmul::kForward)) return others_->Forward(chunk, x);
  const bool counts = Counts(LayerMatmul::kForward, chunk.pass);
  float* y = RowSums(*forward_, *spec_.sums[0].rule,
                     counts ? &CountsAt(LayerMatmul::kForward, 0, chunk.image / most_) : nullptr,
                     chunk, x);
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
  if (!Makes(LayerMatmul::kDx)) return others_->DataGradient(chunk, dy, alpha);
  const bool counts = Counts(LayerMatmul::kDx, chunk.pass);
  float* dx =
      RowSums(*data_, *spec_.sums[1].rule,
              counts ? &CountsAt(LayerMatmul::kDx, 0, chunk.image / most_) : nullptr, chunk, dy);
  const float factor = rounding_.dx_factor();
  if (factor != 1) {
    const std::int64_t values = chunk.images * spec_.x.shape.per_image();
    for (std::int64_t i = 0; i < values; ++i) dx[i] *= factor;
  }
  rounding_.RoundDx(chunk, dx, alpha);
  return true;
}

bool AccumulatedChunks::sparse_sums_are_inexact() const {
  return !Makes(LayerMatmul::kDw) && others_->sparse_sums_are_inexact();
}

std::int64_t AccumulatedChunks::partial_values() const {
  return Makes(LayerMatmul::kDw) ? spec_.w.shape.numel() : others_->partial_values();
}

// There is one, of the whole batch. db is summed from dy by the op.
bool AccumulatedChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  if (!Makes(LayerMatmul::kDw)) return others_->Sum(partials, count, dw, db);
  ADA_CHECK(count == 1);
  std::copy_n(partials, spec_.w.shape.numel(), dw);
  return true;
}

void AccumulatedChunks::AddPlain(const float* dw, const float* db, bool first,
                                 float* partial) const {
  ADA_CHECK(!Makes(LayerMatmul::kDw));
  others_->AddPlain(dw, db, first, partial);
}

// The parts start anew.
void AccumulatedChunks::Total(LayerMatmul matmul, std::size_t rule, AccumulatorCounts& to) {
  to = AccumulatorCounts();
  for (std::size_t part = 0; part < parts_[scaling::IndexOf(matmul)]; ++part) {
    AccumulatorCounts& counts = CountsAt(matmul, rule, static_cast<std::int64_t>(part));
    to.Add(counts);
    counts = AccumulatorCounts();
  }
}

void AccumulatedChunks::Finish(LayerMatmul matmul, const Pass& pass) {
  const auto at = scaling::IndexOf(matmul);
  if (Makes(matmul) && Counts(matmul, pass)) Total(matmul, 0, *spec_.sums[at].counts);
  if (!pass.bins) return;
  for (std::size_t i = 0; i < spec_.sums[at].judged.size(); ++i)
    Total(matmul, 1 + i, *spec_.sums[at].judged[i].counts);
}
void AccumulatedChunks::FinishForward(const Pass& pass) { Finish(LayerMatmul::kForward, pass); }
void AccumulatedChunks::FinishBackward(const Pass& pass) {
  Finish(LayerMatmul::kDx, pass);
  Finish(LayerMatmul::kDw, pass);
}

}  // namespace ada::backend::cpu
