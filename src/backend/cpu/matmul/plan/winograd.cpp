// The plan of Winograd's algorithm: batches of tiles, both passes, and the values of dw that are
// summed one by one; see winograd.h.
#include "backend/cpu/matmul/plan/winograd.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/context.h"

namespace ada::backend::cpu {
namespace {

// Bounds of a batch's memory. Fewer tiles than the least would read all weights too often.
constexpr std::int64_t kBatchBytes = 1 << 19;
constexpr int kLeastTiles = 48, kMostTiles = 256;

std::int64_t LeastSize(const MatmulGeometry& g) { return std::min({g.x.h, g.x.w, g.y.h, g.y.w}); }

// Bits of a slab at least: of the first one, which decides for dense layers, and of the others.
constexpr int kFirstBits = 256, kMoreBits = 4096;
// If more than one in this many values is left after the first slab, direct sums take less time
// than following all of them.
constexpr std::size_t kMostShare = 8;

float ValueOf(const Kernels& kernels, const TensorSpan& values, std::int64_t i) {
  float value = 0;
  kernels.widen(Advance(values, i), &value, 1);
  return value;
}
// The 64 bits that begin `shift` bits after a word's start; the next word is `room` words on.
std::uint64_t Shifted(const std::uint64_t* word, int room, int shift) {
  return shift == 0 ? *word : *word >> shift | word[room] << (64 - shift);
}

}  // namespace

// With few channels transforming costs more than multiplying saves.
bool TakesWinograd(const MatmulGeometry& g) {
  constexpr int kLeastChannels = 16, kLeastSize = 2;
  const auto is = [](const std::array<int, 2>& both, int value) {
    return both[0] == value && both[1] == value;
  };
  return !g.linear && g.groups == 1 && g.w.h == 3 && g.w.w == 3 && is(g.stride, 1) &&
         is(g.dilation, 1) && g.padding[0] <= 2 && g.padding[1] <= 2 &&
         std::min(g.x.c, g.y.c) >= kLeastChannels && LeastSize(g) >= kLeastSize;
}
// In smaller images some weights meet few pixels, and their dw would be made of much larger sums.
bool TakesWinogradGradient(const MatmulGeometry& g) {
  constexpr int kLeastGradientSize = 4;
  return TakesWinograd(g) && LeastSize(g) >= kLeastGradientSize;
}

// Runs are parts of a row of tiles, so that neighbors share the columns that they read.
WinogradBatches::WinogradBatches(const WinogradKernels& kernels, std::int64_t h, std::int64_t w,
                                 std::int64_t values)
    : rows_(QuotientUp(h, 2)), columns_(QuotientUp(w, 2)) {
  const auto most =
      static_cast<int>(std::clamp<std::int64_t>(kBatchBytes / 4 / values, kLeastTiles, kMostTiles));
  run_ = std::min(columns_, most);
  room_ = QuotientUp(most, kernels.room_multiple) * kernels.room_multiple;
}

WinogradConvolution::WinogradConvolution(const WinogradKernels& kernels, const Shape& in,
                                         const Shape& out, std::array<int, 2> padding,
                                         bool data_gradient, int block)
    : kernels_(kernels),
      in_(in),
      out_(out),
      padding_(padding),
      data_gradient_(data_gradient),
      block_(block),
      batches_(kernels, out.h, out.w, std::int64_t{kWinogradPlaces} * 16 * (in_blocks() + 2)) {}

WinogradConvolution WinogradConvolution::Forward(const WinogradKernels& kernels,
                                                 const MatmulGeometry& g, int block) {
  return {kernels, g.x, g.y, g.padding, false, block};
}
// The data gradient of a 3x3 convolution with stride 1 is one of dy with the weights turned round
// and the padding 2 - p.
WinogradConvolution WinogradConvolution::DataGradient(const WinogradKernels& kernels,
                                                      const MatmulGeometry& g, int block) {
  return {kernels, g.y, g.x, {2 - g.padding[0], 2 - g.padding[1]}, true, block};
}

std::size_t WinogradConvolution::scratch_bytes(int) const {
  const std::int64_t sums = 2 * kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), 1);
  return static_cast<std::size_t>(v_values() + sums) * 4;
}
std::size_t WinogradConvolution::weight_bytes() const {
  return static_cast<std::size_t>(panels() * panel_values()) * 4;
}

// U takes 16 values where a kernel has 9: packed weights are larger than direct ones.
bool WinogradConvolution::PackPanel(int panel, const float* plain, std::byte* weights) const {
  WinogradWeightsArgs a;
  // Weights lie as [outputs of the layer][its inputs][3][3].
  const std::int64_t row = 9 * (data_gradient_ ? out_.c : in_.c);
  a.out_step = data_gradient_ ? 9 : row, a.in_step = data_gradient_ ? row : 9;
  a.plain = plain + 16 * panel * a.out_step;
  a.outs = std::min(16, static_cast<int>(out_.c) - 16 * panel), a.ins = static_cast<int>(in_.c);
  a.turned = data_gradient_;
  a.u = reinterpret_cast<float*>(weights) + panel * panel_values();
  return kernels_.transform_weights(a);
}

void WinogradConvolution::Run(const Call& call) const {
  WinogradInputArgs input;
  input.x = {call.in, static_cast<int>(in_.h), static_cast<int>(in_.w), static_cast<int>(in_.c)};
  input.top = padding_[0], input.left = padding_[1];
  input.v = reinterpret_cast<float*>(call.scratch);
  WinogradConvolveArgs a;
  a.v = input.v, a.in_channels = input.x.c;
  a.weights = reinterpret_cast<const float*>(call.weights);
  a.sums = input.v + v_values();
  a.bias = call.bias, a.factor = call.factor;
  a.y = {call.out, static_cast<int>(out_.h), static_cast<int>(out_.w), static_cast<int>(out_.c)};
  a.block = block_, a.largest = call.largest;
  batches_.ForEach(call.images, [&](const WinogradBatch& batch) {
    input.batch = a.batch = batch;
    kernels_.transform_input(input);
    kernels_.convolve(a);
  });
}

WinogradGradient::WinogradGradient(const WinogradKernels& kernels, const MatmulGeometry& geometry)
    : kernels_(kernels),
      geometry_(geometry),
      batches_(kernels, geometry.y.h, geometry.y.w,
               std::int64_t{kWinogradPlaces} * 16 * (in_blocks() + out_blocks())) {
  const int tiles = kWinogradPlaces * in_blocks();
  for (int out = 0; out < out_blocks(); ++out) groups_.push_back({1, tiles, out, 0, out * tiles});
}

std::size_t WinogradGradient::scratch_bytes(int) const {
  const std::int64_t z =
      kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), out_blocks());
  return static_cast<std::size_t>(v_values() + z) * 4;
}
std::int64_t WinogradGradient::partial_values() const {
  return sum_values() + (geometry_.bias ? 16 * out_blocks() : 0);
}

// Only the first batch sets the partial gradient; the others add.
void WinogradGradient::Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                           std::byte* scratch) const {
  const auto images_of = [](TensorSpan values, const Shape& s) {
    return WinogradImages{values, static_cast<int>(s.h), static_cast<int>(s.w),
                          static_cast<int>(s.c)};
  };
  WinogradInputArgs input;
  input.x = images_of(x, geometry_.x);
  input.top = geometry_.padding[0], input.left = geometry_.padding[1];
  input.v = reinterpret_cast<float*>(scratch);
  WinogradGradientArgs a;
  a.v = input.v, a.in_channels = input.x.c;
  a.dy = images_of(dy, geometry_.y);
  a.z = input.v + v_values();
  a.first = first, a.partial = partial;
  if (geometry_.bias) a.bias = partial + sum_values();
  batches_.ForEach(images, [&](const WinogradBatch& batch) {
    input.batch = a.batch = batch;
    kernels_.transform_input(input);
    kernels_.gradient(a);
    a.first = false;
  });
}

void WinogradGradient::ToPlain(const GradientGroup& group, const float* partial, float* dw) const {
  WinogradPlainArgs a;
  a.partial = partial + group.first_value();
  a.outs = std::min(16, static_cast<int>(geometry_.y.c) - 16 * group.out);
  a.ins = static_cast<int>(geometry_.x.c);
  a.dw = dw + std::int64_t{16} * group.out * 9 * a.ins;
  kernels_.plain_gradient(a);
}
void WinogradGradient::BiasToPlain(const float* partial, float* db) const {
  std::copy_n(partial + sum_values(), geometry_.y.c, db);
}

// Sums of which Gt . G is dw: for its rows, and then for its columns, 0 -> place 0, 1 -> place 1
// and, with the other sign, 2, and 2 -> place 3.
void WinogradGradient::AddPlain(const float* dw, const float* db, bool first,
                                float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  struct Share {
    int place, from;
    float sign;
  };
  constexpr Share kShares[] = {{0, 0, 1}, {1, 1, 1}, {2, 1, -1}, {3, 2, 1}};
  const std::int64_t place_values = std::int64_t{256} * in_blocks();
  for (std::int64_t o = 0; o < geometry_.y.c; ++o)
    for (std::int64_t i = 0; i < geometry_.x.c; ++i, dw += 9) {
      float* const at = partial + o / 16 * block_values() + i * 16 + o % 16;
      for (const Share& row : kShares)
        for (const Share& column : kShares)
          at[(4 * row.place + column.place) * place_values] +=
              row.sign * column.sign * dw[3 * row.from + column.from];
    }
  for (std::int64_t o = 0; db != nullptr && o < geometry_.y.c; ++o)
    partial[sum_values() + o] += db[o];
}

SparseSums::SparseSums(const Context& context, const WinogradKernels& kernels,
                       const MatmulGeometry& geometry)
    : context_(context),
      kernels_(kernels),
      geometry_(geometry),
      sums_(static_cast<std::size_t>(QuotientUp(geometry.y.c, 16))) {}

void SparseSums::Begin(const float* dw) {
  dw_ = dw;
  first_ = true, too_many_ = false;
  for (auto& sums : sums_) sums.clear();
}

std::size_t SparseSums::Left() const {
  std::size_t left = 0;
  for (const auto& sums : sums_) left += sums.size();
  return left;
}

// Slab by slab. The first is small, since in a dense layer it settles nearly all weights.
bool SparseSums::Take(TensorSpan x, TensorSpan dy, std::int64_t images) {
  const std::int64_t end = images * geometry_.y.h;
  for (std::int64_t row = 0; row < end;) {
    Slab slab{x, dy, row};
    slab.rows = static_cast<int>(
        std::min<std::int64_t>(QuotientUp(first_ ? kFirstBits : kMoreBits, step()), end - row));
    slab.words = QuotientUp(std::int64_t{slab.rows} * step(), 64);
    Mark(slab);
    context_.pool.For(static_cast<std::int64_t>(sums_.size()), [&](std::int64_t i, int) {
      const auto block = static_cast<int>(i);
      if (first_) FindFew(block);
      Follow(slab, block);
    });
    first_ = false;
    row += slab.rows;
    const std::size_t left = Left();
    too_many_ = left > static_cast<std::size_t>(geometry_.w.numel()) / kMostShare;
    if (left == 0 || too_many_) return false;
  }
  return true;
}

// Pixel x of the input gets bit x + padding of its row: under column k of the kernel an output
// meets the bit that is k further on.
void SparseSums::Mark(const Slab& slab) {
  words_ = slab.words;
  const auto words = static_cast<std::size_t>(words_ + 1);
  for (auto& bits : x_) bits.assign(words * static_cast<std::size_t>(in_room()), 0);
  dy_.assign(words * static_cast<std::size_t>(out_room()), 0);
  const Shape &in = geometry_.x, &out = geometry_.y;
  MarkNonzeroArgs of_dy, of_x;
  of_dy.count = static_cast<int>(out.w), of_dy.channels = static_cast<int>(out.c);
  of_dy.bits = dy_.data(), of_dy.room = out_room();
  of_x.count = static_cast<int>(in.w), of_x.channels = static_cast<int>(in.c);
  of_x.room = in_room();
  for (int r = 0; r < slab.rows; ++r) {
    const std::int64_t row = slab.first + r, image = row / out.h, y = row % out.h;
    of_dy.pixels = Advance(slab.dy, row * out.w * out.c);
    of_dy.position = r * step();
    kernels_.mark_nonzero(of_dy);
    of_x.position = r * step() + geometry_.padding[1];
    for (int tap = 0; tap < kTapRows; ++tap) {
      const std::int64_t from = y + tap - geometry_.padding[0];
      if (from < 0 || from >= in.h) continue;
      of_x.pixels = Advance(slab.x, (image * in.h + from) * in.w * in.c);
      of_x.bits = x_[tap].data();
      kernels_.mark_nonzero(of_x);
    }
  }
}

// The weights of a block of 16 outputs that one slab leaves in doubt.
void SparseSums::FindFew(int block) {
  const auto ins = static_cast<int>(geometry_.x.c);
  std::vector<std::uint16_t> few(static_cast<std::size_t>(ins) * kTaps);
  FindSparseSumsArgs a;
  for (int tap = 0; tap < kTapRows; ++tap) a.x[tap] = x_[tap].data();
  a.dy = dy_.data() + 16 * block;
  a.words = words_, a.in_channels = ins, a.in_room = in_room(), a.out_room = out_room();
  a.few = few.data();
  kernels_.find_sparse_sums(a);
  const int outs = std::min(16, static_cast<int>(geometry_.y.c) - 16 * block);
  auto& sums = sums_[static_cast<std::size_t>(block)];
  for (std::size_t i = 0; i < few.size(); ++i)
    for (unsigned left = few[i] & ((1u << outs) - 1); left != 0; left &= left - 1) {
      const Sum sum{static_cast<int>(i / kTaps), static_cast<std::uint8_t>(std::countr_zero(left)),
                    static_cast<std::uint8_t>(i % kTaps), 0, 0};
      if (dw_[Place(block, sum)] != 0) sums.push_back(sum);
    }
}

// Adds the terms of a slab to the sums that are left, and drops those that have enough.
void SparseSums::Follow(const Slab& slab, int block) {
  auto& sums = sums_[static_cast<std::size_t>(block)];
  for (int word = 0; word < words_ && !sums.empty(); ++word) {
    for (Sum& sum : sums) {
      const std::uint64_t dy =
          dy_[static_cast<std::size_t>(word * out_room() + 16 * block + sum.out)];
      if (dy == 0) continue;
      const auto& x = x_[sum.tap / kTapRows];
      const std::uint64_t* at = x.data() + std::int64_t{word} * in_room() + sum.in;
      AddTerms(slab, block, word, dy & Shifted(at, in_room(), sum.tap % kTapRows), sum);
    }
    std::erase_if(sums, [](const Sum& sum) { return sum.terms >= kEnoughTerms; });
  }
}

// common: the bits of a word at which both are not zero.
void SparseSums::AddTerms(const Slab& slab, int block, int word, std::uint64_t common,
                          Sum& sum) const {
  const Shape &in = geometry_.x, &out = geometry_.y;
  for (; common != 0 && sum.terms < kEnoughTerms; common &= common - 1, ++sum.terms) {
    const int position = 64 * word + std::countr_zero(common);
    const std::int64_t row = slab.first + position / step(), column = position % step();
    const std::int64_t y = row % out.h + sum.tap / kTapRows - geometry_.padding[0];
    const std::int64_t x = column + sum.tap % kTapRows - geometry_.padding[1];
    const std::int64_t from = ((row / out.h * in.h + y) * in.w + x) * in.c + sum.in;
    const std::int64_t at = (row * out.w + column) * out.c + 16 * block + sum.out;
    sum.value += static_cast<double>(ValueOf(context_.kernels, slab.x, from)) *
                 static_cast<double>(ValueOf(context_.kernels, slab.dy, at));
  }
}

std::int64_t SparseSums::Place(int block, const Sum& sum) const {
  return ((std::int64_t{16} * block + sum.out) * geometry_.x.c + sum.in) * kTaps + sum.tap;
}

void SparseSums::Store(float* dw) const {
  for (std::size_t block = 0; block < sums_.size(); ++block)
    for (const Sum& sum : sums_[block])
      dw[Place(static_cast<int>(block), sum)] = static_cast<float>(sum.value);
}

}  // namespace ada::backend::cpu
