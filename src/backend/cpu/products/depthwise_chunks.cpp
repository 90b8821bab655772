// See depthwise_chunks.h.
#include "backend/cpu/products/depthwise_chunks.h"

#include <algorithm>

#include "backend/cpu/ops/blocks.h"
#include "core/number_grid.h"

namespace ada::backend::cpu {
namespace {

// Rows of one image after another, in fp32, as a plan wants them. Row r lies in slot r % ring: rows
// are asked for in rising order, none that lies a ring before another of the same output. Zeros
// beside the rows, and the row of zeros behind them, stay.
class RowRing {
 public:
  RowRing(const TileKernels& kernels, const DepthwisePlan& plan, float* memory)
      : kernels_(kernels), plan_(plan), memory_(memory) {
    std::fill_n(memory, plan.row_values() * static_cast<std::size_t>(plan.ring + 1), 0.0f);
  }
  void Begin(const TensorSpan& image) { image_ = image, next_ = 0; }
  // The row's first pixel, behind the zeros on its left; outside of the image: zeros.
  const float* Row(int row) {
    const std::int64_t width = (plan_.in.c + 15) / 16 * 16;
    if (row < 0 || row >= plan_.in.h) return Slot(plan_.ring) + plan_.left * width;
    for (; next_ <= row; ++next_) {
      DepthwiseWidenArgs widen;
      widen.in = image_, widen.first = next_ * plan_.in.w * plan_.in.c;
      widen.pixels = static_cast<int>(plan_.in.w), widen.channels = static_cast<int>(plan_.in.c);
      widen.out = Slot(next_ % plan_.ring) + plan_.left * width;
      kernels_.widen_pixels(widen);
    }
    return Slot(row % plan_.ring) + plan_.left * width;
  }

 private:
  float* Slot(int slot) const {
    return memory_ + static_cast<std::size_t>(slot) * plan_.row_values();
  }

  const TileKernels& kernels_;
  const DepthwisePlan& plan_;
  TensorSpan image_;
  float* const memory_;
  int next_ = 0;  // row that has not been read
};

}  // namespace

DepthwiseChunks::DepthwiseChunks(const TileKernels& kernels, const Context& context,
                                 const ProductSpec& spec, const ProductGeometry& geometry,
                                 const WeightCopies& weights, ProductRounding& rounding, int most,
                                 std::size_t offset)
    : context_(context),
      kernels_(kernels),
      spec_(spec),
      weights_(weights),
      rounding_(rounding),
      most_(most),
      offset_(offset),
      taps_(static_cast<int>(geometry.w.h * geometry.w.w)),
      forward_(DepthwisePlan::Forward(geometry)),
      data_(DepthwisePlan::DataGradient(geometry)),
      packed_(static_cast<std::size_t>(taps_) * Width()),
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

void DepthwiseChunks::Refresh() {
  const float* plain = weights_.plain();  // [channel][tap]
  const auto channels = static_cast<std::size_t>(spec_.x.shape.c);
  const auto taps = static_cast<std::size_t>(taps_);
  for (std::size_t tap = 0; tap < taps; ++tap)
    for (std::size_t c = 0; c < channels; ++c) packed_[tap * Width() + c] = plain[c * taps + tap];
  if (spec_.b) std::copy_n(spec_.b.f32(), channels, bias_.begin());
  weights_finite_ = context_.kernels.largest(plain, spec_.w.shape.numel()) < kInfinityBits;
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
void DepthwiseChunks::Run(const DepthwisePlan& plan, const Chunk& chunk, const TensorSpan& in,
                          int block, const Buffers& b, DepthwiseRowArgs args) const {
  const auto width = static_cast<std::int64_t>(Width());
  const TensorSpan out = args.out;
  args.in_step = plan.in_step[1], args.out_step = plan.out_step[1];
  args.channels = static_cast<int>(plan.out.c);
  std::vector<DepthwiseTap> taps;
  RowRing ring(kernels_, plan, b.ring);
  for (std::int64_t image = 0; image < chunk.images; ++image) {
    ring.Begin(Advance(in, image * plan.in.per_image()));
    args.largest = b.largest + image / block;
    for (int y = 0; y < plan.out.h; ++y) {
      const int i = y / plan.out_step[0];
      for (const DepthwisePlan::Part& part : plan.parts) {
        if (part.row != y % plan.out_step[0]) continue;
        taps.clear();
        for (const DepthwisePlan::Tap& tap : part.taps)
          taps.push_back({ring.Row(i * plan.in_step[0] + tap.row) + tap.column * width,
                          packed_.data() + tap.weight * width});
        args.taps = taps.data(), args.tap_count = static_cast<int>(taps.size());
        args.columns = part.columns;
        args.out = Advance(
            out, image * plan.out.per_image() + (y * plan.out.w + part.column) * plan.out.c);
        kernels_.depthwise_row(args);
      }
    }
  }
}

// The zeros beside a row are multiplied like other values.
bool DepthwiseChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  if (!weights_finite_) return false;
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfY(chunk, b.values);
  DepthwiseRowArgs args;
  args.out = to.out;
  if (spec_.b) args.bias = bias_.data();
  Run(forward_, chunk, x, rounding_.block_y(), b, args);
  rounding_.CloseY(chunk, to, b.largest);
  return true;
}

bool DepthwiseChunks::DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) {
  if (!weights_finite_) return false;
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfDx(chunk, b.values, alpha);
  DepthwiseRowArgs args;
  args.out = to.out, args.factor = to.factor;
  Run(data_, chunk, dy, rounding_.block_x(), b, args);
  rounding_.CloseDx(chunk, to, alpha, b.largest);
  return true;
}

bool DepthwiseChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy,
                                     bool first, float* partial) {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  const Buffers b = BuffersOf(chunk.worker);
  const auto width = static_cast<std::int64_t>(Width());
  const DepthwisePlan::Part& part = forward_.parts[0];
  DepthwiseGradientArgs args;
  args.columns = part.columns, args.in_step = forward_.in_step[1];
  args.channels = static_cast<int>(spec_.x.shape.c);
  args.dy = b.row, args.gradients = partial;
  if (spec_.b) args.bias = partial + taps_ * width;
  DepthwiseWidenArgs widen;
  widen.pixels = part.columns, widen.channels = args.channels, widen.out = b.row;
  std::vector<DepthwiseTap> taps(part.taps.size());
  RowRing ring(kernels_, forward_, b.ring);
  for (std::int64_t image = 0; image < chunk.images; ++image) {
    ring.Begin(Advance(x, image * forward_.in.per_image()));
    widen.in = Advance(dy, image * forward_.out.per_image());
    for (int y = 0; y < forward_.out.h; ++y) {
      widen.first = y * forward_.out.w * forward_.out.c;
      kernels_.widen_pixels(widen);
      for (std::size_t t = 0; t < taps.size(); ++t)
        taps[t].in =
            ring.Row(y * forward_.in_step[0] + part.taps[t].row) + part.taps[t].column * width;
      args.taps = taps.data(), args.tap_count = static_cast<int>(taps.size());
      kernels_.depthwise_gradient(args);
    }
  }
  return true;
}

std::int64_t DepthwiseChunks::partial_values() const {
  return static_cast<std::int64_t>(Width()) * (taps_ + (spec_.b ? 1 : 0));
}

bool DepthwiseChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  for (std::int64_t i = 1; i < count; ++i)
    context_.kernels.accumulate(partials + i * partial_values(), partials, partial_values());
  const auto channels = static_cast<std::size_t>(spec_.x.shape.c);
  const auto taps = static_cast<std::size_t>(taps_);
  for (std::size_t tap = 0; tap < taps; ++tap)
    for (std::size_t c = 0; c < channels; ++c) dw[c * taps + tap] = partials[tap * Width() + c];
  if (db != nullptr) std::copy_n(partials + taps * Width(), channels, db);
  return context_.kernels.largest(partials, partial_values()) < kInfinityBits;
}

void DepthwiseChunks::AddPlain(const float* dw, const float* db, bool first, float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  const auto channels = static_cast<std::size_t>(spec_.x.shape.c);
  const auto taps = static_cast<std::size_t>(taps_);
  for (std::size_t tap = 0; tap < taps; ++tap)
    for (std::size_t c = 0; c < channels; ++c) partial[tap * Width() + c] += dw[c * taps + tap];
  if (db != nullptr)
    for (std::size_t c = 0; c < channels; ++c) partial[taps * Width() + c] += db[c];
}

}  // namespace ada::backend::cpu
