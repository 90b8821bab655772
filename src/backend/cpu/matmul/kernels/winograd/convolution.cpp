// y of a batch's tiles: place by place the products V . U, for 16 or 32 output channels at a time,
// whose sums wait in the cache; then tile by tile what they are of y.
#include <algorithm>

#include "backend/cpu/matmul/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Blocks of 16 input channels whose sums are one chain: fp32 keeps more of sums of sums.
constexpr int kChainBlocks = 8;

// One batch: for each panel of output channels first all products, then the transforms, which read
// their sums from the cache.
template <class Mode>
class WinogradOutputs {
 public:
  ADA_INLINE explicit WinogradOutputs(const WinogradConvolveArgs& a)
      : a_(a),
        out_(a.y.values, a.factor, a.bias),
        blocks_((a.in_channels + 15) / 16),
        v_place_(WinogradBatch::PlaceValues(a.batch.room, blocks_)),
        sums_place_(WinogradBatch::PlaceValues(a.batch.room, 1)),
        panel_(std::int64_t{kWinogradPlaces} * 256 * blocks_) {}

  ADA_INLINE void Run() {
    const int blocks = (a_.y.c + 15) / 16;
    int n = 0;
    if constexpr (kRowsOfTwo > 0)
      for (; n + 2 <= blocks; n += 2) Panel<kRowsOfTwo, 2>(n);
    for (; n < blocks; ++n) Panel<kRowsOfOne, 1>(n);
  }

 private:
  template <int kRows, int kColumns>
  ADA_OUTLINE void Panel(int n) {
    for (int place = 0; place < kWinogradPlaces; ++place)
      for (int tile = 0; tile < a_.batch.tiles; tile += kRows)
        Products<kRows, kColumns>(n, place, tile);
    for (int c = 0; c < kColumns; ++c) Tiles(n, c);
  }

  // kRows tiles of a place. Those after the last one are zeros.
  template <int kRows, int kColumns>
  ADA_INLINE void Products(int n, int place, int tile) {
    const float* u = a_.weights + n * panel_ + std::int64_t{place} * 256 * blocks_;
    float* to = a_.sums + place * sums_place_ + std::int64_t{tile} * 16;
    Sums<kRows, kColumns> sums;
    for (int begin = 0; begin < blocks_; begin += kChainBlocks) {
      sums.Zero();
      const int end = std::min(begin + kChainBlocks, blocks_);
      for (int block = begin; block < end; ++block) {
        const auto* v = reinterpret_cast<const std::byte*>(
            a_.v + place * v_place_ + (std::int64_t{block} * a_.batch.room + tile) * 16);
        const float* w = u + std::int64_t{256} * block;
        const int values = std::min(16, a_.in_channels - 16 * block);
        if (values == 16) {
#pragma GCC unroll 4
          for (int k = 0; k < 16; ++k) sums.Add(v + 4 * k, 64, w + 16 * k, panel_);
        } else {
          for (int k = 0; k < values; ++k) sums.Add(v + 4 * k, 64, w + 16 * k, panel_);
        }
      }
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          float* const at = to + c * column() + r * 16;
          StoreF(at, begin == 0 ? sums.Get(r, c) : LoadF(at) + sums.Get(r, c));
        }
    }
  }

  // From the sums of column c to 16 output channels of y.
  ADA_OUTLINE void Tiles(int n, int c) {
    const int channel = 16 * (n + c), lanes = a_.y.c - channel;
    const float* sums = a_.sums + c * column();
    int block = -1;
    U largest{};
    for (int r = 0; r < a_.batch.run_count; ++r) {
      const WinogradRun& run = a_.batch.runs[r];
      if (run.image / a_.block != block) {
        Measure(block, largest);
        block = run.image / a_.block, largest = U{};
      }
      const std::int64_t image = run.image * a_.y.image_values() + channel;
      for (int t = 0; t < run.count; ++t, sums += 16)
        largest = Tile(sums, image, 2 * run.row, 2 * (run.column + t), channel, lanes, largest);
    }
    Measure(block, largest);
  }

  ADA_INLINE U Tile(const float* sums, std::int64_t image, int y, int x, int channel, int lanes,
                    U largest) const {
    F rows[2][kSide];
#pragma GCC unroll 4
    for (int column = 0; column < kSide; ++column) {
      const float* at = sums + column * sums_place_;
      TransformSums(LoadF(at), LoadF(at + kSide * sums_place_), LoadF(at + 2 * kSide * sums_place_),
                    LoadF(at + 3 * kSide * sums_place_), rows[0][column], rows[1][column]);
    }
#pragma GCC unroll 2
    for (int row = 0; row < 2; ++row) {
      if (y + row >= a_.y.h) break;
      F values[2];
      TransformSums(rows[row][0], rows[row][1], rows[row][2], rows[row][3], values[0], values[1]);
      const std::int64_t i = image + (std::int64_t{y + row} * a_.y.w + x) * a_.y.c;
      largest = out_.Store(i, channel, lanes, values[0], largest);
      if (x + 1 < a_.y.w) largest = out_.Store(i + a_.y.c, channel, lanes, values[1], largest);
    }
    return largest;
  }
  ADA_INLINE void Measure(int block, U largest) {
    if (block < 0 || a_.largest == nullptr) return;
    out_.Merge(largest);
    out_.TakeLargest(a_.largest + block);
  }
  ADA_INLINE std::int64_t column() const { return kWinogradPlaces * sums_place_; }

  const WinogradConvolveArgs& a_;
  SumsOut<Mode> out_;
  const int blocks_;
  const std::int64_t v_place_, sums_place_, panel_;
};

}  // namespace

void WinogradConvolve(const WinogradConvolveArgs& a) {
  ForStorage(a.y.values.storage, [&](auto mode) { WinogradOutputs<decltype(mode)>(a).Run(); });
}

extern const WinogradKernels kWinogradTable;
const WinogradKernels kWinogradTable = {.transform_input = WinogradInput,
                                        .convolve = WinogradConvolve,
                                        .gradient = WinogradProducts,
                                        .transform_weights = WinogradWeights,
                                        .plain_gradient = WinogradPlain,
                                        .mark_nonzero = MarkNonzero,
                                        .find_sparse_sums = FindSparseSums,
                                        .room_multiple = kRowsOfOne};

}  // namespace ada::backend::cpu::ADA_ISA
