// The weight gradient of convolutions and linear layers on tiles (tile_kernels.h):
//
//   dw[o][ky][kx][i] = sum over images and output pixels (r, q) of
//                      dy[r][q][o] * x[r * stride + ky * dilation - padding][same of q, kx][i]
//
// The unit sums over 32 values at a time, as 16 pairs. A pair holds the same pixel of two images,
// so that a tap's shift by a pixel is one by whole pairs: tiles of x may begin at any pixel without
// a copy. Narrow images lie `pairs` pairs side by side, so that few of a tile's 16 rows are empty:
//
//   a plane of a row of x:  pixel 0               pixel 1               ...   (64 bytes a pair:
//                           pair 0, pair 1, ...   pair 0, pair 1, ...          16 channels x 2)
//   a tile of x             16 pairs from any pixel on
//   a tile of dy            16 output channels x 16 pairs: dy transposed
//
// A plane has 16 channels of every stride-th pixel, and each part (kernels/amx/parts.h) its own.
// Few channels are gathered instead: "channels" of a plane are then those of all taps of a kernel
// row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/products/partial_gradients.h"
#include "backend/cpu/products/product.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {

struct WeightGradientShape {
  int h = 1, w = 1, c = 1;              // of x
  int out_h = 1, out_w = 1, out_c = 1;  // of dy
  int kernel_h = 1, stride_h = 1, padding_h = 0, dilation_h = 1;
  int stride_w = 1, padding_w = 0;
  int x_parts = 2, dy_parts = 2;
  bool bias = false, gathered = false;
};
// 16 channels of one pixel in stride_w.
struct GradientPlane {
  int first = 0, count = 0;  // the plane's pixels first .. first + count lie in the image
  int source = 0;            // where in an image's row `first` begins; gathered: of its padded row
  int lanes = 16;            // channels that exist
};
// 16 columns of dw: a plane under one tap.
struct GradientColumn {
  int row = 0, plane = 0;    // row: of the kernel
  int shift = 0;             // of the tap, in pixels of the plane
  int first = 0, last = 0;   // output pixels [first, last) whose tap lies in the image
  int channel = 0, tap = 0;  // of the first column of dw; the others follow in channel order
};
// Of a block of 16 pairs of dy, from the first value of its row: where the pairs' pixels begin in
// bytes, and which of them exist.
struct GradientOffsets {
  std::ptrdiff_t first[16] = {}, second[16] = {};  // of a pair
  std::uint16_t has_first = 0, has_second = 0;
};

// How the images of one call lie in scratch memory. Rows of all sets of 2 * pairs images follow one
// another; dy is packed in strips of a few rows, two in turn, and x in a ring of rows.
struct WeightGradientPlan {
  int pairs = 1, sets = 1;
  int blocks = 1;                  // of 16 pairs, in a row of dy
  int pixels = 1;                  // of a plane, with the zeros around it
  int first_strip = 1, strip = 1;  // rows of dy, at first and at most
  int ring = 1;                    // rows of x
  std::size_t plane_bytes = 0, row_bytes = 0, strip_bytes = 0, line_bytes = 0;
  // Offsets in scratch memory.
  std::size_t x = 0, dy = 0, zeros = 0, lines = 0, offsets = 0, rows = 0, bytes = 0;
};

// Where the strip ends that begins at row `first` of `rows`. The first is short, since nothing
// hides its packing; each of the next has as many rows as all before it.
inline int StripEnd(const WeightGradientPlan& plan, int first, int rows) {
  const int most = first < plan.strip ? first : plan.strip;
  const int size = most > plan.first_strip ? most : plan.first_strip;
  return rows - first < size ? rows : first + size;
}

struct WeightGradientArgs {
  const WeightGradientShape* shape = nullptr;
  const WeightGradientPlan* plan = nullptr;
  const GradientPlane* planes = nullptr;
  const GradientColumn* columns = nullptr;
  const GradientGroup* groups = nullptr;
  int plane_count = 0, group_count = 0, tiles = 0;  // tiles: of dw in a partial gradient
  TensorSpan x, dy;
  int images = 0;
  bool first = true;
  float* partial = nullptr;
  std::byte* scratch = nullptr;
};

class TileWeightGradient final : public PartialGradients {
 public:
  // `geometry` has one group. Values of x and dy are sums of at most so many bf16 parts (PartsOf).
  TileWeightGradient(const TileKernels& kernels, const ProductGeometry& geometry, int x_parts,
                     int dy_parts);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  void Gather();
  void MakePlanes(int dilation);
  std::int64_t Blocks(int images, int pairs) const;
  WeightGradientPlan Plan(int images) const;
  template <class Visit>
  void ForWeights(const GradientGroup& group, Visit&& visit) const;
  std::int64_t OffsetOfBias(int channel) const;

  const TileKernels& kernels_;
  WeightGradientShape shape_;
  int kernel_w_ = 1;
  std::vector<GradientPlane> planes_;
  std::vector<GradientColumn> columns_;
  std::vector<GradientGroup> groups_;
  int tiles_ = 0;  // of dw
};

}  // namespace ada::backend::cpu
