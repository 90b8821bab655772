// A convolution as products of tiles: what forward products and data gradients have in common.
//
//   out[y][x][n] = sum over taps and k of in[y * step + tap.y][x * step + tap.x][k] * w[tap][k][n]
//
// The input is packed into records, one for each pixel of a frame with zeros around the image, so
// that 16 neighbours in a row of the output read 16 neighbours in memory, whatever the tap. Where
// rows of the output do not fill tiles, images lie side by side:
//
//   columns  0           1           2
//   images   0 1 2 3     0 1 2 3     0 1 2 3     ...     (4 images together: 4 columns make a tile)
//
// Kernels of floats and pairs leave out the steps that find only zeros beside the image, and so
// like tiles of few columns (side_by_side.h).
//
// Where there are few channels, rows of the frame hold them without gaps (tile_frame.h). Channels
// in groups are one convolution after another, each with its part of every pixel.
//
// With a stride the columns are sorted by what is left of their number after division by it, which
// gives one frame a remainder. The data gradient of a convolution with a stride is one convolution
// for each remainder of the output's rows and columns, each with the taps that reach it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "backend/cpu/products/chunk_convolution.h"
#include "backend/cpu/products/product.h"
#include "backend/cpu/products/tile_frame.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {

// pack_records: a frame of `images` images. Missing ones are zeros.
struct PackRecordsArgs {
  TileFrame frame;
  TensorSpan x;
  int images = 0, h = 0, w = 0, c = 0;
  int pixel = 0;             // values from one pixel to the next: c, or the channels of all groups
  bool image_pairs = false;  // kPairs: a record holds two images' channels, not twice as many
  std::byte* records = nullptr;  // [blocks][groups of images][remainders][rows][columns][together]
  std::int64_t plane_bytes = 0;  // of one block of channels; of runs: of all
};

// pack_weights: one tile of weights, from values at plain[column * column_step + k * k_step].
struct PackWeightsArgs {
  const float* plain = nullptr;
  std::int64_t column_step = 0, k_step = 0;
  int columns = 16, k = 32;  // that there are; zeros behind
  bool twice = false;        // k <= 16: the upper half repeats the lower one
  int parts = 1;
  std::byte* tiles = nullptr;  // 1 KB a part
};

// Lists of the steps that find anything but zeros beside the image: for rows 0 to 7 of a tile, 8 to
// 15, and all of them.
struct TileSteps {
  std::uint16_t of_half[2] = {0, 0}, of_all = 0;
};

// 16 positions of the output.
struct TileOfRows {
  std::int64_t record = 0;  // bytes, of row 0
  std::int64_t out = 0;     // values, of row 0
  std::int32_t block = 0;   // reduction block of row 0
  std::uint32_t valid = 0;  // one bit a row
  TileSteps steps = {};     // not of parts
};

// convolve: all tiles of one call, every output channel.
struct TileConvolutionArgs {
  const std::byte* records = nullptr;
  int row_bytes = 64, x_parts = 1, w_parts = 1;
  bool both_parts_in_row = false;
  const std::int64_t* steps = nullptr;        // bytes from a tile's record to what a step reads
  int step_count = 0;                         // taps times blocks of channels
  const std::uint8_t* step_values = nullptr;  // channels of a step; not of parts
  const std::int32_t* lists = nullptr;        // of steps: list l are list_begins[l] .. [l + 1]
  const std::int32_t* list_begins = nullptr;  // not of parts
  const std::byte* weights = nullptr;         // tiles: [out channels / 16][steps][w_parts]
  const TileOfRows* tiles = nullptr;
  int tile_count = 0;                         // a multiple of 4
  const std::int64_t* row_offsets = nullptr;  // values, from row 0 to row i
  const std::uint8_t* row_blocks = nullptr;   // reduction blocks, likewise; not of parts
  int channels = 0;                           // of the output
  float* sums = nullptr;                      // [tile_count][16][16], where weights exceed a panel
  const float* bias = nullptr;                // channels rounded up to 16, zeros behind; null: none
  float factor = 1;                           // out = round(sum * factor + bias)
  TensorSpan out;                             // fp32: stored as they are
  std::uint32_t* largest = nullptr;           // by reduction block: bits of the largest magnitude
};

class TileConvolution final : public ChunkConvolution {
 public:
  // y from x; and dx from dy, of up to `most` images a call. Parts: of the values read, and of the
  // weights. block: images in a reduction block of the output; of parts no tile holds images of
  // two.
  static TileConvolution Forward(const TileKernels& kernels, const ProductGeometry& geometry,
                                 int x_parts, int w_parts, int block, int most);
  static TileConvolution DataGradient(const TileKernels& kernels, const ProductGeometry& geometry,
                                      int dy_parts, int w_parts, int block, int most);

  // Of a forward product's input, as direct weight gradients read it: how it lies (a record holds
  // images_in_record() images), and where they find what taps meet.
  static TileConvolution ForGradient(const TileKernels& kernels, const ProductGeometry& geometry,
                                     int block, int most);
  int images_in_record() const { return images_in_record_; }
  const TileFrame& frame() const { return frame_; }
  int images_at_once() const { return at_once_; }
  int row_step() const { return row_step_; }
  std::int64_t RecordBytes(int images) const;  // of all blocks of channels
  void PackRecords(TensorSpan in, int images, std::byte* records) const;
  std::vector<std::int64_t> Steps(int images) const { return StepsOf(parts_[0], images); }
  const std::vector<std::uint8_t>& step_values() const { return parts_[0].step_values; }
  // Outputs that find what they read within the image: rows top .. bottom, columns left .. right.
  struct Met {
    int top = 0, bottom = 0, left = 0, right = 0;
  };
  std::vector<Met> MetBySteps() const;
  // Which weight step s begins at: its first input channel, and its place among the kernel's.
  struct StepWeight {
    int channel = 0, weight = 0;
  };
  std::vector<StepWeight> StepWeights() const;
  // Where the weight of value i of x lies, beside those of the same tap: i counts the channels of a
  // window's or a flattened image's pixels, one pixel behind the other.
  std::int64_t WeightOf(std::int64_t i) const;

  void Prepare(int images) override;  // lists their tiles
  std::size_t scratch_bytes(int images) const override;
  std::size_t weight_bytes() const override {
    return static_cast<std::size_t>(group_weight_bytes_ * geometry_.groups);
  }
  // A panel: the weights of 16 output channels of one part each.
  int panels() const override;
  bool PackPanel(int panel, const float* plain, std::byte* tiles) const override;
  void Run(const Call& call) const override;

 private:
  void RunSome(const Call& call) const;
  void RunGroup(const Call& call) const;
  struct Tap {
    int row, column;  // of the frame, beside a tile's own
    int remainder;
    int weight;    // ky * kernel width + kx; of a window the first
    Met met = {};  // of a window whatever the column
  };
  // Output positions of one remainder: all of them in a forward product.
  struct Part {
    int row = 0, column = 0, rows = 0, columns = 0;
    std::vector<Tap> taps;
    std::vector<std::uint8_t> step_values = {};  // channels of each step
    // Different lists of steps, one behind the other, and those of each tile of an image.
    std::vector<std::int32_t> lists = {}, list_begins = {};
    std::vector<TileSteps> tile_steps = {};  // [row][columns / columns of a tile]
  };
  TileConvolution(const TileKernels& kernels, const ProductGeometry& geometry, int block);
  void SetShapes(const Shape& in, const Shape& out);
  void PlanForward();
  void PlanDataGradient();
  void FinishPlan(int in_parts, int record_channels);
  bool TakesRuns() const;
  Met MetBy(const Part& part, const Tap& tap) const;
  void ListSteps(Part& part) const;
  std::int64_t PlaneBytes(int images) const;
  std::vector<TileOfRows> TilesOf(const Part& part, int images) const;
  std::vector<std::int64_t> StepsOf(const Part& part, int images) const;
  void PrepareSome(int images);
  void PackTile(const float* plain, int out, int block, const Tap& tap, std::byte* tile) const;

  const TileKernels* kernels_;
  ProductGeometry geometry_;                    // as a convolution
  std::int64_t weight_channels_, weight_taps_;  // of one output, in PyTorch's order
  int block_;                                   // images
  bool data_gradient_ = false;
  int images_in_record_ = 1;
  Shape in_, out_;                             // of one group of channels
  std::int64_t in_pixel_ = 0, out_pixel_ = 0;  // channels of all groups
  int w_parts_ = 1;
  TileFrame frame_;
  int at_once_ = 1;                       // images whose records are in memory at a time
  int row_step_ = 1;                      // rows of the frame between rows of the output
  std::array<int, 2> out_step_ = {1, 1};  // of a part's rows and columns
  std::vector<Part> parts_;
  std::array<std::int64_t, 16> row_offsets_ = {};
  std::array<std::uint8_t, 16> row_blocks_ = {};
  std::int64_t group_weight_bytes_ = 0;  // of one group of channels
  struct Lists {
    std::vector<std::vector<TileOfRows>> tiles;  // by part
    std::vector<std::vector<std::int64_t>> steps;
  };
  std::map<int, Lists> lists_;  // by images at a time
};

}  // namespace ada::backend::cpu
