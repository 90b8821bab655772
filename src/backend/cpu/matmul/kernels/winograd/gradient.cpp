// The products V . Z of a batch's tiles, added to a partial gradient: for each place, 16 or 32
// output channels and some input channels their sums over the tiles stay in registers.
#include "backend/cpu/matmul/kernels/winograd/transforms.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Z of 16 output channels of the tiles of a run.
template <class Mode>
ADA_OUTLINE void GradientRun(const WinogradGradientArgs& a, const WinogradRun& run, int channel,
                             float* z, std::int64_t place) {
  const PixelRows<Mode, 2> rows(a.dy, run.image, 2 * run.row, channel);
  for (int t = 0; t < run.count; ++t, z += 16) {
    F columns[2][kSide];
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      F dy[2];
      rows.template Load<true>(2 * (run.column + t) + c, dy);
      TransformGradients(dy[0], dy[1], columns[c]);
    }
    F places[kWinogradPlaces];
#pragma GCC unroll 4
    for (int row = 0; row < kSide; ++row)
      TransformGradients(columns[0][row], columns[1][row], places + kSide * row);
    StorePlaces(places, z, place);
  }
}

// One batch: Transform makes Z of dy, Run the products with V and, where it is wanted, db.
class WinogradGradients {
 public:
  ADA_INLINE explicit WinogradGradients(const WinogradGradientArgs& a)
      : a_(a),
        in_blocks_((a.in_channels + 15) / 16),
        out_blocks_((a.dy.c + 15) / 16),
        v_place_(WinogradBatch::PlaceValues(a.batch.room, in_blocks_)),
        z_place_(WinogradBatch::PlaceValues(a.batch.room, out_blocks_)),
        block_(std::int64_t{a.batch.room} * 16),
        panel_(std::int64_t{kWinogradPlaces} * 256 * in_blocks_) {}

  template <class Mode>
  ADA_INLINE void Transform() {
    for (int n = 0; n < out_blocks_; ++n) {
      float* z = a_.z + n * block_;
      for (int r = 0; r < a_.batch.run_count; ++r) {
        GradientRun<Mode>(a_, a_.batch.runs[r], 16 * n, z, z_place_);
        z += 16 * a_.batch.runs[r].count;
      }
    }
  }
  ADA_INLINE void Run() {
    int n = 0;
    if constexpr (kRowsOfTwo > 0)
      for (; n + 2 <= out_blocks_; n += 2) Panel<kRowsOfTwo, 2>(n);
    for (; n < out_blocks_; ++n) Panel<kRowsOfOne, 1>(n);
    if (a_.bias != nullptr) Bias();
  }

 private:
  template <int kRows, int kColumns>
  ADA_OUTLINE void Panel(int n) {
    constexpr int kRest = 16 % kRows;
    for (int place = 0; place < kWinogradPlaces; ++place)
      for (int block = 0; block < in_blocks_; ++block) {
        int k = 0;
        for (; k + kRows <= 16; k += kRows) Products<kRows, kColumns>(n, place, block, k);
        if constexpr (kRest > 0) Products<kRest, kColumns>(n, place, block, k);
      }
  }

  // Multiplies for input channels k .. k + kRows - 1 of a block.
  template <int kRows, int kColumns>
  ADA_INLINE void Products(int n, int place, int block, int k) {
    const auto* v =
        reinterpret_cast<const std::byte*>(a_.v + place * v_place_ + block * block_ + k);
    const float* z = a_.z + place * z_place_ + n * block_;
    float* partial = a_.partial + n * panel_ + (std::int64_t{place} * in_blocks_ + block) * 256 +
                     std::int64_t{k} * 16;
    Sums<kRows, kColumns> sums;
    sums.Zero();
    for (int t = 0; t < a_.batch.tiles; ++t) sums.Add(v + t * 64, 4, z + t * 16, block_);
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        float* const at = partial + c * panel_ + r * 16;
        StoreF(at, a_.first ? sums.Get(r, c) : LoadF(at) + sums.Get(r, c));
      }
  }

  // Place 5 of Z is the sum of a tile's four gradients.
  ADA_OUTLINE void Bias() const {
    for (int n = 0; n < out_blocks_; ++n) {
      const float* z = a_.z + 5 * z_place_ + n * block_;
      F sum = a_.first ? F{} : LoadF(a_.bias + 16 * n);
      for (int t = 0; t < a_.batch.tiles; ++t) sum += LoadF(z + 16 * t);
      StoreF(a_.bias + 16 * n, sum);
    }
  }

  const WinogradGradientArgs& a_;
  const int in_blocks_, out_blocks_;
  const std::int64_t v_place_, z_place_, block_, panel_;
};

}  // namespace

void WinogradProducts(const WinogradGradientArgs& a) {
  WinogradGradients gradients(a);
  ForStorage(a.dy.values.storage, [&](auto mode) { gradients.Transform<decltype(mode)>(); });
  gradients.Run();
}

}  // namespace ada::backend::cpu::ADA_ISA
