// See partial_gradients.h: how dw is cut into tiles and how a call's images are laid out.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

constexpr int kTile = 256;  // values
// The number of blocks in a strip, at most and in the first one. Sums go through memory once for
// each strip, which takes about as long as the products of one block.
constexpr int kStripBlocks = 16, kFirstBlocks = 4;

// Towards larger numbers, for negative a too.
int CeilOver(int a, int b) { return a >= 0 ? QuotientUp(a, b) : -(-a / b); }
std::size_t Size(int n) { return static_cast<std::size_t>(n); }

// The groups of `columns` columns, for one or two blocks of output channels. Products on one sum
// wait for each other, so that there should be four sums at least; there is room for six.
std::vector<int> Cut(int columns, int outs) {
  std::vector<int> sizes;
  if (outs == 2) {
    for (int left = columns; left > 0;) {
      sizes.push_back(left == 3 ? 3 : std::min(left, 2));
      left -= sizes.back();
    }
  } else {
    const int groups = QuotientUp(columns, 5);
    for (int g = 0; g < groups; ++g)
      sizes.push_back(columns / groups + (g < columns % groups ? 1 : 0));
  }
  return sizes;
}

// The tiles of a group lie together in a partial gradient, group by group.
std::vector<GradientGroup> Groups(int columns, int out_blocks) {
  std::vector<GradientGroup> groups;
  int tile = 0;
  for (int out = 0; out < out_blocks; out += 2) {
    const int outs = std::min(2, out_blocks - out);
    int column = 0;
    for (const int size : Cut(columns, outs)) {
      groups.push_back({outs, size, out, column, tile});
      column += size, tile += size * outs;
    }
  }
  return groups;
}

// Row of x, from the top padding on, of row t of dy; rows of one set follow those of another.
int RowOfX(const WeightGradientShape& s, int t) {
  const int rows = (s.out_h - 1) * s.stride_h + (s.kernel_h - 1) * s.dilation_h + 1;
  return t / s.out_h * rows + t % s.out_h * s.stride_h;
}
// Rows from the first that a strip reads to the last that the next strip reads.
int RingRows(const WeightGradientShape& s, const WeightGradientPlan& p) {
  const int rows = p.sets * s.out_h;
  int most = 0;
  for (int first = 0; first < rows; first = StripEnd(p, first, rows)) {
    const int last = StripEnd(p, StripEnd(p, first, rows), rows) - 1;
    most = std::max(most, RowOfX(s, last) - RowOfX(s, first) + (s.kernel_h - 1) * s.dilation_h + 1);
  }
  return most;
}

}  // namespace

// Channels are gathered where the values of a kernel's row fill fewer vectors together than tap by
// tap.
AmxWeightGradient::AmxWeightGradient(const MatmulKernels& kernels, const MatmulGeometry& g,
                                     int x_parts, int dy_parts)
    : kernels_(kernels) {
  ADA_CHECK(g.groups == 1);
  const auto narrow = [](std::int64_t n) { return static_cast<int>(n); };
  WeightGradientShape& s = shape_;
  s.h = narrow(g.x.h), s.w = narrow(g.x.w), s.c = narrow(g.x.c);
  s.out_h = narrow(g.y.h), s.out_w = narrow(g.y.w), s.out_c = narrow(g.y.c);
  s.kernel_h = narrow(g.w.h), kernel_w_ = narrow(g.w.w);
  if (!g.linear) {
    s.stride_h = g.stride[0], s.padding_h = g.padding[0], s.dilation_h = g.dilation[0];
    s.stride_w = g.stride[1], s.padding_w = g.padding[1];
  }
  s.x_parts = x_parts, s.dy_parts = dy_parts, s.bias = g.bias;
  const int dilation_w = g.linear ? 1 : g.dilation[1];
  s.gathered = dilation_w == 1 && QuotientUp(kernel_w_ * s.c, 16) < kernel_w_ * QuotientUp(s.c, 16);
  s.gathered ? Gather() : MakePlanes(dilation_w);
  groups_ = Groups(static_cast<int>(columns_.size()), QuotientUp(s.out_c, 16));
  tiles_ = static_cast<int>(columns_.size()) * QuotientUp(s.out_c, 16);
}

// One plane for each 16 of the values of a kernel's row.
void AmxWeightGradient::Gather() {
  const WeightGradientShape& s = shape_;
  const int blocks = QuotientUp(kernel_w_ * s.c, 16);
  for (int block = 0; block < blocks; ++block) planes_.push_back({0, s.out_w, 16 * block, 16});
  for (int row = 0; row < s.kernel_h; ++row)
    for (int block = 0; block < blocks; ++block)
      columns_.push_back({row, block, 0, 0, s.out_w, 16 * block, row * kernel_w_});
}

// A plane for each 16 channels and each remainder of x's columns by the stride that taps meet.
void AmxWeightGradient::MakePlanes(int dilation) {
  const WeightGradientShape& s = shape_;
  const int blocks = QuotientUp(s.c, 16), stride = s.stride_w, padding = s.padding_w;
  std::vector<int> phases;
  const auto plane_of = [&](int kx) {
    const auto at = std::find(phases.begin(), phases.end(), kx * dilation % stride);
    return static_cast<int>(at - phases.begin());
  };
  for (int kx = 0; kx < kernel_w_; ++kx)
    if (plane_of(kx) == static_cast<int>(phases.size())) phases.push_back(kx * dilation % stride);
  const int pixels = s.out_w + (kernel_w_ - 1) * dilation / stride;
  for (const int r : phases) {
    const int first = std::max(0, CeilOver(padding - r, stride));
    const int end = std::min(pixels, CeilOver(s.w + padding - r, stride));
    for (int block = 0; block < blocks; ++block)
      planes_.push_back({first, std::max(0, end - first),
                         (first * stride + r - padding) * s.c + 16 * block,
                         std::min(16, s.c - 16 * block)});
  }
  for (int pair = 0; pair < blocks; pair += 2)
    for (int tap = 0; tap < s.kernel_h * kernel_w_; ++tap)
      for (int block = pair; block < std::min(pair + 2, blocks); ++block) {
        const int kx = tap % kernel_w_ * dilation;
        const int first = std::max(0, CeilOver(padding - kx, stride));
        const int last = std::min(s.out_w, CeilOver(s.w + padding - kx, stride));
        columns_.push_back({tap / kernel_w_, plane_of(tap % kernel_w_) * blocks + block,
                            kx / stride, first, std::max(first, last), 16 * block, tap});
      }
}

// The number of blocks of 32 positions that are multiplied with all columns; decides `pairs`.
std::int64_t AmxWeightGradient::Blocks(int images, int pairs) const {
  std::int64_t blocks = 0;
  for (const GradientColumn& c : columns_)
    blocks += QuotientUp(c.last * pairs, 16) - c.first * pairs / 16;
  return blocks * QuotientUp(images, 2 * pairs);
}

// More pairs of images side by side leave fewer rows of tiles empty and take more memory: they have
// to save 5 %.
WeightGradientPlan AmxWeightGradient::Plan(int images) const {
  const WeightGradientShape& s = shape_;
  WeightGradientPlan p;
  for (int pairs = 2; pairs <= 16; pairs *= 2)  // more of them take more memory
    if (Blocks(images, pairs) * 20 < Blocks(images, p.pairs) * 19) p.pairs = pairs;
  p.sets = QuotientUp(images, 2 * p.pairs);
  p.blocks = QuotientUp(s.out_w * p.pairs, 16);
  int shift = 0;
  for (const GradientColumn& c : columns_) shift = std::max(shift, c.shift);
  p.pixels = QuotientUp(p.blocks * 16, p.pairs) + shift;
  p.strip = std::min(QuotientUp(kStripBlocks, p.blocks), p.sets * s.out_h);
  p.first_strip = std::min(p.strip, QuotientUp(kFirstBlocks, p.blocks));
  p.ring = RingRows(s, p);
  const int outs = QuotientUp(s.out_c, 16);
  // All parts lie one after the other in a worker's scratch memory: the ring of x, two strips of
  // dy, zeros, gathered lines, and tables.
  p.plane_bytes = Size(p.pixels * p.pairs) * 64;
  p.row_bytes = planes_.size() * Size(s.x_parts) * p.plane_bytes;
  p.strip_bytes = Size(p.strip) * Size(p.blocks) * Size(outs * s.dy_parts) * 1024;
  const int line = std::max((s.w + s.padding_w) * s.c, (s.out_w - 1) * s.stride_w * s.c +
                                                           16 * static_cast<int>(planes_.size()));
  p.line_bytes = s.gathered ? WholeLines(Size(line) * 4) : 0;
  p.dy = Size(p.ring) * p.row_bytes;
  p.zeros = p.dy + 2 * p.strip_bytes;
  p.lines = p.zeros + Size(s.x_parts) * p.plane_bytes;
  p.offsets = p.lines + Size(2 * p.pairs) * p.line_bytes;
  p.rows = p.offsets + 2 * Size(p.blocks) * sizeof(GradientOffsets);
  p.bytes = p.rows + WholeLines(Size(p.strip * s.kernel_h) * sizeof(std::byte*));
  return p;
}

// A smaller call may need more, since it may interleave more pairs.
std::size_t AmxWeightGradient::scratch_bytes(int images) const {
  std::size_t bytes = 0;
  for (int n = 1; n <= images; ++n) bytes = std::max(bytes, Plan(n).bytes);
  return bytes;
}

std::int64_t AmxWeightGradient::partial_values() const {
  return kTile * std::int64_t{tiles_ + (shape_.bias ? QuotientUp(shape_.out_c, 16) : 0)};
}

void AmxWeightGradient::Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                            std::byte* scratch) const {
  const WeightGradientPlan plan = Plan(images);
  WeightGradientArgs args;
  args.shape = &shape_, args.plan = &plan;
  args.planes = planes_.data(), args.columns = columns_.data(), args.groups = groups_.data();
  args.plane_count = static_cast<int>(planes_.size());
  args.group_count = static_cast<int>(groups_.size());
  args.tiles = tiles_;
  args.x = x, args.dy = dy, args.images = images, args.first = first;
  args.partial = partial, args.scratch = scratch;
  kernels_.weight_gradient(args);
}

// visit(offset in a partial gradient, offset in PyTorch's order) for the weights of one group.
template <class Visit>
void AmxWeightGradient::ForWeights(const GradientGroup& g, Visit&& visit) const {
  const WeightGradientShape& s = shape_;
  const int taps = s.kernel_h * kernel_w_, channels = s.gathered ? kernel_w_ * s.c : s.c;
  for (int b = 0; b < g.columns; ++b) {
    const GradientColumn& column = columns_[Size(g.column + b)];
    const int lanes = std::min(16, channels - column.channel);
    std::int64_t offsets[16];  // of the columns in a row of dw
    for (int k = 0; k < lanes; ++k) {
      const int value = column.channel + k;
      offsets[k] = std::int64_t{value % s.c} * taps + column.tap + value / s.c;
    }
    for (int a = 0; a < g.outs; ++a) {
      const int out = 16 * (g.out + a), rows = std::min(16, s.out_c - out);
      const std::int64_t tile = std::int64_t{kTile} * (g.tile + a * g.columns + b);
      for (int r = 0; r < rows; ++r) {
        const std::int64_t row = std::int64_t{out + r} * s.c * taps;
        for (int k = 0; k < lanes; ++k) visit(tile + 16 * r + k, row + offsets[k]);
      }
    }
  }
}
// The first column of a tile of db; its other columns are the same.
std::int64_t AmxWeightGradient::OffsetOfBias(int channel) const {
  return std::int64_t{kTile} * tiles_ + 16 * std::int64_t{channel};
}

void AmxWeightGradient::ToPlain(const GradientGroup& group, const float* partial, float* dw) const {
  ForWeights(group, [&](std::int64_t from, std::int64_t to) { dw[to] = partial[from]; });
}
void AmxWeightGradient::BiasToPlain(const float* partial, float* db) const {
  for (int o = 0; o < shape_.out_c; ++o) db[o] = partial[OffsetOfBias(o)];
}

void AmxWeightGradient::AddPlain(const float* dw, const float* db, bool first,
                                 float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  for (const GradientGroup& group : groups_)
    ForWeights(group, [&](std::int64_t to, std::int64_t from) { partial[to] += dw[from]; });
  if (db != nullptr)
    for (int o = 0; o < shape_.out_c; ++o) partial[OffsetOfBias(o)] += db[o];
}

}  // namespace ada::backend::cpu
