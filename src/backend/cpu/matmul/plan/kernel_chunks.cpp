// See kernel_chunks.h.
#include "backend/cpu/matmul/plan/kernel_chunks.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "backend/cpu/matmul/plan/depthwise_chunks.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"
#include "backend/cpu/matmul/plan/winograd.h"
#include "backend/cpu/rounding/blocks.h"
#include "error.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

// Products and their sums are whole multiples of 2 to the sum of the operands' lowest bits. From
// this exponent on nothing is subnormal in fp32.
constexpr int kLowestNormal = -126;

int LowestBitOf(const NumberFormat& f) { return 1 - f.bias - f.mantissa_bits; }
bool HasSixteenBits(const Tensor& t) { return t.storage != Storage::kF32; }

bool ByWinograd(const MatmulKernels& kernels, const MatmulGeometry& geometry) {
  return kernels.on_fp32() && kernels.winograd != nullptr && TakesWinograd(geometry);
}
// Packed pixels of bf16 pairs would be half empty, and Winograd's algorithm in fp32 is faster; but
// of formats that make some of a layer's weights zero they would not be taken.
bool FasterByWinograd(const MatmulKernels& kernels, const NumberFormat& weights,
                      const MatmulGeometry& geometry) {
  constexpr int kPixelChannels = 32, kSmallWeight = -20;
  return kernels.winograd != nullptr && TakesWinograd(geometry) &&
         LowestBitOf(weights) <= kSmallWeight &&
         std::min(geometry.x.c, geometry.y.c) < kPixelChannels;
}

}  // namespace

// The leading bit that is not stored counts as well.
int PartsOf(const NumberFormat& format) {
  const int bits = format.mantissa_bits + 1;
  return bits <= 8 ? 1 : bits <= 16 ? 2 : 0;
}

// Reasons in the order in which they exclude more; the text ends up in --verbose.
const char* WhyNoKernels(const MatmulKernels& kernels, const MatmulSpec& spec,
                         const MatmulGeometry& geometry) {
  if (geometry.transposed) return "it is transposed";
  if (kernels.depthwise_row != nullptr && IsNarrow(geometry)) return nullptr;
  // A packed pixel of a group holds few values where the group has few channels.
  const bool few = std::min(geometry.w.c, geometry.y.c / geometry.groups) < 16;
  if (geometry.groups != 1 && (kernels.on_bf16_split() || few)) return "its channels are in groups";
  if (kernels.on_fp32()) return nullptr;
  if (!HasSixteenBits(spec.x) || (spec.dy && !HasSixteenBits(spec.dy.tensor)))
    return "what it reads is not kept in 16 bits";
  if (PartsOf(spec.w_format) == 0) return "its weights have more than 16 significant bits";
  const auto one = [](const NumberFormat& format) { return PartsOf(format) == 1; };
  if (kernels.on_bf16_dot() &&
      !(one(spec.x.format) && one(spec.w_format) && (!spec.dy || one(spec.dy.tensor.format))))
    return "what it reads has more than 8 significant bits";
  if (spec.w_style.per_tensor_scale != nullptr) return "its weights have a scale of their own";
  if (kernels.on_bf16_dot() && FasterByWinograd(kernels, spec.w_format, geometry))
    return "it is faster in fp32 by Winograd's algorithm";
  return nullptr;
}

const char* WayOfMatmuls(const MatmulKernels& kernels, const MatmulGeometry& geometry) {
  if (kernels.depthwise_row != nullptr && IsNarrow(geometry)) return "lane by lane in fp32";
  if (ByWinograd(kernels, geometry)) return "by Winograd's algorithm in fp32";
  return kernels.on_bf16_split() ? "on tiles of bf16"
         : kernels.on_bf16_dot() ? "in pairs of bf16"
                                 : "directly in fp32";
}

int ImagesOfRowBlocks(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images) {
  if (kernels.on_bf16_split() || IsNarrow(geometry) || ByWinograd(kernels, geometry)) return 2;
  if (geometry.linear) return images >= 32 ? 32 : 16;  // a row of a row block each
  const int data = geometry.data_gradient ? ImagesForDataGradient(kernels, geometry, images) : 1;
  return std::max({2, data, ImagesForOutputs(kernels, geometry, images)});
}

KernelChunks::KernelChunks(const MatmulKernels& kernels, const Context& context,
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
      winograd_(ByWinograd(kernels, geometry)),
      winograd_gradient_(winograd_ && geometry.training && TakesWinogradGradient(geometry)),
      bias_(spec.b ? static_cast<std::size_t>(spec.w.shape.n + 15) : 0) {
  MakeMatmuls(geometry);
  if (winograd_) MakeWinograd(geometry);
  for (const bool winograd : {false, true})
    for (Way* way : Ways(winograd)) Own(*way);
  Reserve();
}

// The ways to compute y and, if the layer has it, dx; Winograd's algorithm is among them only if
// the layer may use it.
std::vector<KernelChunks::Way*> KernelChunks::Ways(bool winograd) {
  std::vector<Way*> ways;
  for (Side* side : {&forward_, &data_}) {
    Way& way = winograd ? side->winograd : side->direct;
    if (way.convolution) ways.push_back(&way);
  }
  return ways;
}

void KernelChunks::MakeMatmuls(const MatmulGeometry& geometry) {
  const auto parts_of = [&](const NumberFormat& f) {
    return kernels_.on_bf16_split() ? PartsOf(f) : 1;
  };
  const int x_parts = parts_of(spec_.x.format), w_parts = parts_of(spec_.w_format);
  forward_.direct.convolution = std::make_unique<PackedConvolution>(PackedConvolution::Forward(
      kernels_, geometry, x_parts, w_parts, rounding_.block_y(), static_cast<int>(most_)));
  if (!geometry.training) return;
  const int dy_parts = parts_of(spec_.dy.tensor.format);
  if (kernels_.on_bf16_split())
    gradient_ = std::make_unique<AmxWeightGradient>(kernels_, geometry, x_parts, dy_parts);
  else if (winograd_gradient_)
    gradient_ = std::make_unique<WinogradGradient>(*kernels_.winograd, geometry);
  else
    gradient_ = std::make_unique<DirectWeightGradient>(kernels_, geometry, rounding_.block_y(),
                                                       static_cast<int>(most_));
  if (!geometry.data_gradient) return;
  data_.direct.convolution = std::make_unique<PackedConvolution>(PackedConvolution::DataGradient(
      kernels_, geometry, dy_parts, w_parts, rounding_.block_x(), static_cast<int>(most_)));
}

void KernelChunks::MakeWinograd(const MatmulGeometry& geometry) {
  const WinogradKernels& kernels = *kernels_.winograd;
  forward_.winograd.convolution = std::make_unique<WinogradConvolution>(
      WinogradConvolution::Forward(kernels, geometry, rounding_.block_y()));
  if (geometry.training && geometry.data_gradient)
    data_.winograd.convolution = std::make_unique<WinogradConvolution>(
        WinogradConvolution::DataGradient(kernels, geometry, rounding_.block_x()));
}

KernelChunks::~KernelChunks() { context_.scratch.CountOwn(-bytes_); }

void KernelChunks::Own(Way& way) {
  way.weights.resize(way.convolution->weight_bytes());
  bytes_ += static_cast<std::ptrdiff_t>(way.weights.size());
  context_.scratch.CountOwn(static_cast<std::ptrdiff_t>(way.weights.size()));
}

void KernelChunks::Refresh() {
  const std::int64_t values = spec_.w.shape.numel();
  const auto of_each = [&](auto&& of) {
    const auto forward = of(weights_.plain(WeightUse::kForward));
    if (weights_.plain(WeightUse::kForward) == weights_.plain(WeightUse::kData)) return forward;
    return std::min(forward, of(weights_.plain(WeightUse::kData)));
  };
  if (kernels_.on_fp32())
    weights_finite_ = of_each([&](const float* plain) {
      return context_.kernels.largest(plain, values) < kInfinityBits;
    });
  else
    weight_bit_ = of_each([&](const float* plain) {
      return LowestBit(spec_.w_format, {const_cast<float*>(plain), Storage::kF32}, values);
    });
  if (spec_.b) std::copy_n(spec_.b.f32(), spec_.w.shape.n, bias_.begin());
  by_winograd_ = winograd_ && Pack(/*winograd=*/true);
  if (!by_winograd_) Pack(/*winograd=*/false);
}

// Returns false where these weights cannot be multiplied in this way.
// Panels of all ways are packed in parallel. One that declines ends nothing: the others are packed
// in vain, which happens rarely.
bool KernelChunks::Pack(bool winograd) {
  std::vector<std::pair<Way*, int>> panels;
  for (Way* way : Ways(winograd))
    for (int panel = 0; panel < way->convolution->panels(); ++panel)
      panels.emplace_back(way, panel);
  std::atomic<bool> usable = true;
  context_.pool.For(static_cast<std::int64_t>(panels.size()), [&](std::int64_t i, int) {
    const auto [way, panel] = panels[static_cast<std::size_t>(i)];
    const bool data = way == &data_.direct || way == &data_.winograd;
    const float* plain = weights_.plain(data ? WeightUse::kData : WeightUse::kForward);
    if (!way->convolution->PackPanel(panel, plain, way->weights.data())) usable = false;
  });
  return usable;
}

void KernelChunks::Reserve() {
  const std::int64_t values =
      most_ * std::max(spec_.x.shape.per_image(), spec_.y.shape.per_image());
  const int images = static_cast<int>(most_);
  std::size_t tiles = 0;
  for (const bool winograd : {false, true})
    for (const Way* way : Ways(winograd))
      tiles = std::max(tiles, way->convolution->scratch_bytes(images));
  if (gradient_) {
    const bool batch = gradient_->slices() > 1;
    tiles = std::max(tiles,
                     gradient_->scratch_bytes(batch ? static_cast<int>(spec_.x.shape.n) : images));
  }
  context_.scratch.Reserve(offset_ + WholeLines(static_cast<std::size_t>(most_) * 4) +
                               WholeLines(static_cast<std::size_t>(values) * 4) + WholeLines(tiles),
                           0);
}

KernelChunks::Buffers KernelChunks::BuffersOf(int worker) const {
  const std::int64_t values =
      most_ * std::max(spec_.x.shape.per_image(), spec_.y.shape.per_image());
  std::byte* begin = context_.scratch.worker(worker) + offset_;
  Buffers b;
  b.largest = reinterpret_cast<std::uint32_t*>(begin);
  begin += WholeLines(static_cast<std::size_t>(most_) * 4);
  b.values = reinterpret_cast<float*>(begin);
  b.tiles = begin + WholeLines(static_cast<std::size_t>(values) * 4);
  std::fill_n(b.largest, most_, 0u);
  return b;
}

void KernelChunks::Prepare(std::int64_t images) {
  for (const bool winograd : {false, true})
    for (Way* way : Ways(winograd)) way->convolution->Prepare(static_cast<int>(images));
}

// Whether what a call gave is what fp32 gives: for the direct fp32 kernels, where no zero of the
// frame around an image has met a weight that is not finite.
bool KernelChunks::Usable(const std::uint32_t* largest, std::int64_t blocks) const {
  if (kernels_.on_fp32() && !by_winograd_) return weights_finite_;
  return std::all_of(largest, largest + blocks, [](std::uint32_t u) { return u < kInfinityBits; });
}

// The exponent of the lowest bit that any of these values has; a large one where all are zero.
// Formats whose lowest bit is high enough in every case need no look at the values.
int KernelChunks::LowestBit(const NumberFormat& format, const TensorSpan& values,
                            std::int64_t count) const {
  const int lowest = LowestBitOf(format);
  if (lowest >= kLowestNormal / 2) return lowest;
  const std::uint32_t smallest = context_.kernels.smallest_stored(values, count);
  if (smallest >= kInfinityBits - 1) return 0;
  const int exponent = std::ilogb(OfBits(smallest + 1));
  return std::max(lowest, exponent - format.mantissa_bits);
}

// Whether all products and the operands themselves are multiples of fp32's smallest normal number:
// bf16 hardware flushes smaller values to zero.
bool KernelChunks::InRange(const NumberFormat& format, const TensorSpan& values, const Shape& shape,
                           std::int64_t images, int other_bit) const {
  if (kernels_.on_fp32()) return true;
  const int bit = LowestBit(format, values, images * shape.per_image());
  return bit >= kLowestNormal && other_bit >= kLowestNormal && bit + other_bit >= kLowestNormal;
}

// Winograd's algorithm makes what waits in fp32 to be rounded one reduction block at a time: a
// whole chunk of it would push the weights and the sums of tiles out of the cache.
template <class Close>
bool KernelChunks::Convolve(const Way& way, ChunkConvolution::Call call, const Shape& in, int block,
                            const Chunk& chunk, const Buffers& b,
                            const MatmulRounding::Destination& to, const Close& close) const {
  const TensorSpan begin = call.in;
  call.out = to.out, call.factor = to.factor;
  call.weights = way.weights.data();
  call.scratch = b.tiles;
  const std::int64_t step = by_winograd_ && to.by_block ? block : chunk.images;
  for (std::int64_t i = 0; i < chunk.images; i += step) {
    const Chunk part{chunk.pass, chunk.image + i, std::min(step, chunk.images - i), chunk.worker};
    call.in = Advance(begin, i * in.per_image());
    call.images = static_cast<int>(part.images);
    call.largest = b.largest + i / block;
    way.convolution->Run(call);
    if (!Usable(call.largest, BlockCount(part.images, block))) return false;
    close(part, call.largest);
  }
  return true;
}

bool KernelChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  if (!InRange(spec_.x.format, x, spec_.x.shape, chunk.images, weight_bit_)) return false;
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfY(chunk, b.values);
  ChunkConvolution::Call call;
  call.in = x;
  if (spec_.b) call.bias = bias_.data();
  return Convolve(forward_.taken(by_winograd_), call, spec_.x.shape, rounding_.block_y(), chunk, b,
                  to, [&](const Chunk& part, const std::uint32_t* largest) {
                    rounding_.CloseY(part, to, largest);
                  });
}

bool KernelChunks::DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) {
  if (!InRange(spec_.dy.tensor.format, dy, spec_.y.shape, chunk.images, weight_bit_)) return false;
  const Buffers b = BuffersOf(chunk.worker);
  const auto to = rounding_.DestinationOfDx(chunk, b.values, alpha);
  ChunkConvolution::Call call;
  call.in = dy;
  return Convolve(data_.taken(by_winograd_), call, spec_.y.shape, rounding_.block_x(), chunk, b, to,
                  [&](const Chunk& part, const std::uint32_t* largest) {
                    rounding_.CloseDx(part, to, alpha, largest);
                  });
}

bool KernelChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy,
                                  bool first, float* partial) {
  int dy_bit = 0;
  if (!kernels_.on_fp32())
    dy_bit = LowestBit(spec_.dy.tensor.format, dy, chunk.images * spec_.y.shape.per_image());
  if (!InRange(spec_.x.format, x, spec_.x.shape, chunk.images, dy_bit)) return false;
  gradient_->Run(x, dy, static_cast<int>(chunk.images), first, partial,
                 BuffersOf(chunk.worker).tiles);
  return true;
}

int KernelChunks::slices() const { return gradient_ ? gradient_->slices() : 1; }
void KernelChunks::WeightSlice(int slice, const Chunk& batch, const TensorSpan& x,
                               const TensorSpan& dy, float* partial) {
  gradient_->RunSlice(slice, x, dy, static_cast<int>(batch.images), partial,
                      BuffersOf(batch.worker).tiles);
}

// 0 in a graph that does not train.
std::int64_t KernelChunks::partial_values() const {
  return gradient_ ? gradient_->partial_values() : 0;
}
// Group by group, so that workers share the sums and each tile is read once more while it is in the
// cache.
bool KernelChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  std::atomic<bool> finite = true;
  const auto sum = [&](std::int64_t first, std::int64_t values) {
    for (std::int64_t i = 1; i < count; ++i)
      context_.kernels.accumulate(partials + i * partial_values() + first, partials + first,
                                  values);
    if (context_.kernels.largest(partials + first, values) >= kInfinityBits) finite = false;
  };
  const auto& groups = gradient_->groups();
  context_.pool.For(static_cast<std::int64_t>(groups.size()), [&](std::int64_t i, int) {
    const GradientGroup& group = groups[static_cast<std::size_t>(i)];
    sum(group.first_value(), group.values());
    gradient_->ToPlain(group, partials, dw);
  });
  if (db == nullptr) return finite;
  const std::int64_t bias = groups.back().first_value() + groups.back().values();
  sum(bias, partial_values() - bias);
  gradient_->BiasToPlain(partials, db);
  return finite;
}
void KernelChunks::AddPlain(const float* dw, const float* db, bool first, float* partial) const {
  gradient_->AddPlain(dw, db, first, partial);
}

}  // namespace ada::backend::cpu
