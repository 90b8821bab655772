// Chunks of depthwise convolutions, and which rows and columns are multiplied with each tap; see
// depthwise_chunks.h.
#include "backend/cpu/matmul/plan/depthwise_chunks.h"

#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/blocks.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {

DepthwisePlan DepthwisePlan::Forward(const MatmulGeometry& g) {
  DepthwisePlan plan;
  plan.in = g.x, plan.out = g.y, plan.in_step = g.stride, plan.planes = static_cast<int>(g.w.c);
  OutputPhase part;
  part.columns = static_cast<int>(g.y.w);
  for (int ky = 0; ky < g.w.h; ++ky)
    for (int kx = 0; kx < g.w.w; ++kx)
      part.taps.push_back({ky * g.dilation[0] - g.padding[0], kx * g.dilation[1] - g.padding[1],
                           ky * static_cast<int>(g.w.w) + kx});
  plan.parts.push_back(std::move(part));
  plan.Finish();
  return plan;
}

// One part for each phase of rows and columns: its outputs meet the same taps, one of every stride.
DepthwisePlan DepthwisePlan::DataGradient(const MatmulGeometry& g) {
  DepthwisePlan plan;
  plan.in = g.y, plan.out = g.x, plan.out_step = g.stride, plan.planes = static_cast<int>(g.w.c);
  for (int r = 0; r < std::min<std::int64_t>(g.stride[0], g.x.h); ++r) {
    for (int q = 0; q < std::min<std::int64_t>(g.stride[1], g.x.w); ++q) {
      OutputPhase part{r, q, QuotientUp(g.x.w - q, g.stride[1]), {}};
      for (const Reach& row : ReachesOf(g, 0, r))
        for (const Reach& column : ReachesOf(g, 1, q))
          part.taps.push_back({row.at, column.at, row.k * static_cast<int>(g.w.w) + column.k});
      plan.parts.push_back(std::move(part));
    }
  }
  plan.Finish();
  return plan;
}

// The ring has as many rows as the taps of one output row read, and zeros on both sides as far as
// any tap reaches.
void DepthwisePlan::Finish() {
  int top = 0, bottom = 0, lowest = 0, highest = static_cast<int>(in.w) - 1;
  bool any = false;
  for (const OutputPhase& part : parts) {
    for (const Tap& tap : part.taps) {
      top = any ? std::min(top, tap.row) : tap.row;
      bottom = any ? std::max(bottom, tap.row) : tap.row;
      any = true;
      lowest = std::min(lowest, tap.column);
      highest = std::max(highest, (part.columns - 1) * in_step[1] + tap.column);
    }
  }
  ring = bottom - top + 1;
  left = -lowest;
  pixels = left + highest + 1;
}

std::size_t DepthwisePlan::ring_bytes() const {
  return WholeLines(static_cast<std::size_t>(row_values() * (ring + 1)) * sizeof(float));
}

// Rows of one image after another, in fp32, as a plan wants them, `channels` channels of each
// pixel. Row r lies in slot r % ring: rows are asked for in rising order, none that lies a ring
// before another of the same output. Zeros beside the rows, and the row of zeros after them, stay.
class RowRing {
 public:
  RowRing(const MatmulKernels& kernels, const DepthwisePlan& plan, float* memory)
      : kernels_(kernels), plan_(plan), memory_(memory) {
    std::fill_n(Slot(plan.ring), plan.row_values(), 0.0f);
    const std::int64_t left = std::int64_t{16} * plan.left, end = left + 16 * plan.in.w;
    for (std::int64_t i = 0; i < std::int64_t{plan.ring} * plan.blocks() * plan.planes; ++i) {
      float* const plane = memory + i * plan.plane_values();
      std::fill_n(plane, left, 0.0f);
      std::fill_n(plane + end, plan.plane_values() - end, 0.0f);
    }
  }
  void Begin(const TensorSpan& image) { image_ = image, next_ = 0; }
  // The row's first pixel, after the zeros on its left; outside of the image: zeros.
  // Rows up to the one that is asked for are widened on the way.
  const float* Row(int row) {
    if (row < 0 || row >= plan_.in.h) return FirstPixel(plan_.ring);
    for (; next_ <= row; ++next_) {
      DepthwiseWidenArgs widen;
      widen.in = image_, widen.first = next_ * plan_.in.w * plan_.in.c;
      widen.pixels = static_cast<int>(plan_.in.w), widen.channels = static_cast<int>(plan_.in.c);
      widen.planes = plan_.planes;
      widen.out = FirstPixel(next_ % plan_.ring);
      widen.plane = plan_.plane_values(), widen.block = plan_.block_values();
      kernels_.widen_pixels(widen);
    }
    return FirstPixel(row % plan_.ring);
  }

 private:
  float* Slot(int slot) const { return memory_ + slot * plan_.row_values(); }
  float* FirstPixel(int slot) const { return Slot(slot) + std::int64_t{16} * plan_.left; }

  const MatmulKernels& kernels_;
  const DepthwisePlan& plan_;
  TensorSpan image_;
  float* const memory_;
  int next_ = 0;  // row that has not been read
};

DepthwiseChunks::DepthwiseChunks(const MatmulKernels& kernels, const Context& context,
                                 const MatmulSpec& spec, const MatmulGeometry& geometry,
                                 const WeightCopies& weights, MatmulRounding& rounding, int most,
                                 std::size_t offset)
    : context_(context),
      kernels_(kernels),
      spec_(spec),
      weights_(weights),
      rounding_(rounding),
      most_(most),
      offset_(offset),
      kernel_(static_cast<int>(geometry.w.h * geometry.w.w)),
      planes_(static_cast<int>(geometry.w.c)),
      forward_(DepthwisePlan::Forward(geometry)),
      data_(DepthwisePlan::DataGradient(geometry)),
      forward_weights_(static_cast<std::size_t>(taps()) * Width()),
      data_weights_(forward_weights_.size()),
      bias_(spec.b ? Width() : 0) {
  const auto values = static_cast<std::size_t>(
      most_ * std::max(spec.x.shape.per_image(), spec.y.shape.per_image()));
  const std::size_t row = static_cast<std::size_t>(geometry.y.w) * Width();
  context.scratch.Reserve(
      offset + WholeLines(static_cast<std::size_t>(most) * 4) + WholeLines(values * 4) +
          std::max(forward_.ring_bytes(), data_.ring_bytes()) + WholeLines(row * 4),
      0);
}

std::size_t DepthwiseChunks::Width() const {
  return static_cast<std::size_t>((spec_.x.shape.c + 15) / 16 * 16);
}

// visit(channel c out, k of its group in, tap, place among packed weights, in PyTorch's order)
template <class Visit>
void DepthwiseChunks::ForWeights(Visit&& visit) const {
  for (std::int64_t c = 0; c < spec_.x.shape.c; ++c)
    for (std::int64_t k = 0; k < planes_; ++k)
      for (std::int64_t tap = 0; tap < kernel_; ++tap)
        visit(c, k, tap, ((c / 16 * kernel_ + tap) * planes_ + k) * 16 + c % 16,
              (c * planes_ + k) * kernel_ + tap);
}

void DepthwiseChunks::Refresh() {
  const float *forward = weights_.plain(WeightUse::kForward),
              *data = weights_.plain(WeightUse::kData);
  ForWeights([&](std::int64_t c, std::int64_t k, std::int64_t tap, std::int64_t packed,
                 std::int64_t i) {
    forward_weights_[static_cast<std::size_t>(packed)] = forward[i];
    // Lane c of dx takes plane k of dy by the weight from channel c to the k-th of its group.
    const std::int64_t out = c / planes_ * planes_ + k, in = c % planes_;
    data_weights_[static_cast<std::size_t>(packed)] = data[(out * planes_ + in) * kernel_ + tap];
  });
  if (spec_.b) std::copy_n(spec_.b.f32(), spec_.x.shape.c, bias_.begin());
  const std::int64_t values = spec_.w.shape.numel();
  std::uint32_t largest = context_.kernels.largest(forward, values);
  if (data != forward) largest = std::max(largest, context_.kernels.largest(data, values));
  weights_finite_ = largest < kInfinityBits;
}

DepthwiseChunks::Buffers DepthwiseChunks::BuffersOf(int worker) const {
  const auto values = static_cast<std::size_t>(
      most_ * std::max(spec_.x.shape.per_image(), spec_.y.shape.per_image()));
  std::byte* begin = context_.scratch.worker(worker) + offset_;
  Buffers b;
  b.largest = reinterpret_cast<std::uint32_t*>(begin);
  std::fill_n(b.largest, most_, 0u);
  begin += WholeLines(static_cast<std::size_t>(most_) * 4);
  b.values = reinterpret_cast<float*>(begin);
  begin += WholeLines(values * 4);
  b.ring = reinterpret_cast<float*>(begin);
  b.row = reinterpret_cast<float*>(begin + std::max(forward_.ring_bytes(), data_.ring_bytes()));
  return b;
}

// args: bias, factor and `out`, of the chunk's first image.
void DepthwiseChunks::Run(const DepthwisePlan& plan, const std::vector<float>& weights,
                          const Chunk& chunk, const TensorSpan& in, int block, const Buffers& b,
                          DepthwiseRowArgs args) const {
  const TensorSpan out = args.out;
  args.channels = static_cast<int>(plan.out.c);
  args.in_step = plan.in_step[1], args.out_step = plan.out_step[1] * plan.out.c;
  args.in_block = plan.block_values(), args.weight_block = std::int64_t{16} * taps();
  RowRing ring(kernels_, plan, b.ring);
  for (std::int64_t image = 0; image < chunk.images; ++image) {
    ring.Begin(Advance(in, image * plan.in.per_image()));
    args.out = Advance(out, image * plan.out.per_image());
    args.largest = b.largest + image / block;
    for (int y = 0; y < plan.out.h; ++y) RunRow(plan, y, ring, weights.data(), args);
  }
}

// A row of the output. args.out: of the image.
// The weights' taps are listed for each row, since those of a data gradient depend on its phase.
void DepthwiseChunks::RunRow(const DepthwisePlan& plan, int y, RowRing& ring, const float* weights,
                             DepthwiseRowArgs args) const {
  const TensorSpan out = args.out;
  const int i = y / plan.out_step[0];
  std::vector<DepthwiseTap> taps;
  // Taps of one column; those that lie outside of the image are left out.
  const auto add = [&](const DepthwisePlan::Tap& tap, int column) {
    const float* row = ring.Row(i * plan.in_step[0] + tap.row) + (column + tap.column) * 16;
    for (int k = 0; k < planes_; ++k)
      taps.push_back({row + k * plan.plane_values(), weights + (tap.weight * planes_ + k) * 16});
  };
  const auto run = [&](const DepthwisePlan::OutputPhase& part, int column, int columns) {
    args.taps = taps.data(), args.tap_count = static_cast<int>(taps.size());
    args.columns = columns;
    args.out =
        Advance(out, (y * plan.out.w + part.column + column * plan.out_step[1]) * plan.out.c);
    kernels_.depthwise_row(args);
  };
  for (const DepthwisePlan::OutputPhase& part : plan.parts) {
    if (part.row != y % plan.out_step[0]) continue;
    if (weights_finite_) {
      taps.clear();
      for (const DepthwisePlan::Tap& tap : part.taps) add(tap, 0);
      run(part, 0, part.columns);
      continue;
    }
    // Padding zeros must not be multiplied with weights that are not finite.
    for (int column = 0; column < part.columns; ++column) {
      taps.clear();
      const int x = column * plan.in_step[1];
      for (const DepthwisePlan::Tap& tap : part.taps) {
        const int row = i * plan.in_step[0] + tap.row;
        if (row >= 0 && row < plan.in.h && x + tap.column >= 0 && x + tap.column < plan.in.w)
          add(tap, x);
      }
      run(part, column, 1);
    }
  }
}

bool DepthwiseChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfY(chunk, b.values);
  DepthwiseRowArgs args;
  args.out = to.out, args.factor = to.factor;
  if (spec_.b) args.bias = bias_.data();
  Run(forward_, forward_weights_, chunk, x, rounding_.block_y(), b, args);
  rounding_.CloseY(chunk, to, b.largest);
  return true;
}

bool DepthwiseChunks::DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) {
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfDx(chunk, b.values, alpha);
  DepthwiseRowArgs args;
  args.out = to.out, args.factor = to.factor;
  Run(data_, data_weights_, chunk, dy, rounding_.block_x(), b, args);
  rounding_.CloseDx(chunk, to, alpha, b.largest);
  return true;
}

// Zeros around the image are multiplied like all else: dw of weights that meet an infinite dy there
// is NaN, and the layer's dw is made anew (Sum).
bool DepthwiseChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy,
                                     bool first, float* partial) {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  const Buffers b = BuffersOf(chunk.worker);
  const DepthwisePlan& plan = forward_;
  const DepthwisePlan::OutputPhase& part = plan.parts[0];
  DepthwiseGradientArgs args;
  args.columns = part.columns, args.in_step = plan.in_step[1];
  args.channels = static_cast<int>(plan.out.c);
  args.dy = b.row, args.in_block = plan.block_values();
  args.gradients = partial;
  if (spec_.b) args.bias = partial + taps() * static_cast<std::int64_t>(Width());
  DepthwiseWidenArgs widen;
  widen.pixels = part.columns, widen.channels = args.channels;
  widen.out = b.row, widen.block = std::int64_t{16} * part.columns;
  std::vector<DepthwiseTap> met(static_cast<std::size_t>(taps()));
  args.taps = met.data(), args.tap_count = taps();
  RowRing ring(kernels_, plan, b.ring);
  for (std::int64_t image = 0; image < chunk.images; ++image) {
    ring.Begin(Advance(x, image * plan.in.per_image()));
    widen.in = Advance(dy, image * plan.out.per_image());
    for (int y = 0; y < plan.out.h; ++y) {
      widen.first = y * plan.out.w * plan.out.c;
      kernels_.widen_pixels(widen);
      auto next = met.begin();
      for (const DepthwisePlan::Tap& tap : part.taps) {
        const float* row = ring.Row(y * plan.in_step[0] + tap.row) + tap.column * 16;
        for (int k = 0; k < planes_; ++k) (next++)->in = row + k * plan.plane_values();
      }
      kernels_.depthwise_gradient(args);
    }
  }
  return true;
}

std::int64_t DepthwiseChunks::partial_values() const {
  return static_cast<std::int64_t>(Width()) * (taps() + (spec_.b ? 1 : 0));
}

bool DepthwiseChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  for (std::int64_t i = 1; i < count; ++i)
    context_.kernels.accumulate(partials + i * partial_values(), partials, partial_values());
  ForWeights([&](std::int64_t, std::int64_t, std::int64_t, std::int64_t from, std::int64_t to) {
    dw[to] = partials[from];
  });
  if (db != nullptr)
    std::copy_n(partials + taps() * static_cast<std::int64_t>(Width()), spec_.x.shape.c, db);
  return context_.kernels.largest(partials, partial_values()) < kInfinityBits;
}

void DepthwiseChunks::AddPlain(const float* dw, const float* db, bool first, float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  ForWeights([&](std::int64_t, std::int64_t, std::int64_t, std::int64_t to, std::int64_t from) {
    partial[to] += dw[from];
  });
  float* bias = partial + taps() * static_cast<std::int64_t>(Width());
  if (db != nullptr)
    for (std::int64_t c = 0; c < spec_.x.shape.c; ++c) bias[c] += db[c];
}

}  // namespace ada::backend::cpu
