// A convolution over packed input: what forward passes and data gradients have in common.
//
//   out[y][x][n] = sum over taps and k of in[y * step + tap.y][x * step + tap.x][k] * w[tap][k][n]
//
// The input is packed pixel by pixel into a frame with zeros around the image, so that 16 neighbors
// in a row of the output read 16 neighbors in memory, whatever the tap. Where rows of the output do
// not fill row blocks, images are interleaved:
//
//   columns  0           1           2
//   images   0 1 2 3     0 1 2 3     0 1 2 3     ...
//
// Here four images are: four columns make a row block.
//
// The fp32 and bf16-dot kernels leave out the steps that find only zeros around the image, and
// therefore prefer row blocks of few columns (ImagesForOutputs).
//
// Where there are few channels, rows of the frame hold them without gaps (PackedFrame). Channels
// in groups are one convolution after another, each with its part of every pixel.
//
// With a stride the columns are sorted by stride phase (their number modulo the stride), which
// gives one frame a phase. The data gradient of a convolution with a stride is one convolution for
// each phase of the output's rows and columns, each with the taps that reach it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"

namespace ada::backend::cpu {

// A convolution of some images by our own kernels: what the ways of computing it (directly, here;
// by Winograd's algorithm, winograd.h) have in common. Made by KernelChunks, for y and for dx each.
// Run is const and may be called by all workers at a time, each with scratch memory of its own;
// packed weights belong to the caller.
class ChunkConvolution {
 public:
  struct Call {
    TensorSpan in, out;
    int images = 0;
    const std::byte* weights = nullptr;
    const float* bias = nullptr;       // channels rounded up to 16, zeros after; null: none
    float factor = 1;                  // out = round(sum * factor + bias); fp32: not rounded
    std::uint32_t* largest = nullptr;  // merged into, by reduction block of the output
    std::byte* scratch = nullptr;      // 64-byte aligned
  };
  virtual ~ChunkConvolution() = default;

  // Prepares calls for this many images. Must not be called while workers run.
  virtual void Prepare(int images) = 0;
  // The scratch memory that one worker needs for a call of at most this many images.
  virtual std::size_t scratch_bytes(int images) const = 0;

  virtual std::size_t weight_bytes() const = 0;
  // From PyTorch's order, panel by panel: each writes a part of the weights of its own. False: with
  // these weights zeros would not come out as zeros; Run is not to be called.
  virtual int panels() const = 0;
  virtual bool PackPanel(int panel, const float* plain, std::byte* weights) const = 0;

  virtual void Run(const Call& call) const = 0;
};

// The plan of one convolution: the constructor computes what depends only on the layer, Prepare
// what depends on the number of images. The AMX, fp32 and bf16-dot kernels share it; they differ in
// block and parts of the frame.
class PackedConvolution final : public ChunkConvolution {
 public:
  // y from x; and dx from dy, of up to `most` images a call. Parts: of the values read, and of the
  // weights. block: images in a reduction block of the output; for bf16 split no row block holds
  // images of two.
  static PackedConvolution Forward(const MatmulKernels& kernels, const MatmulGeometry& geometry,
                                   int x_parts, int w_parts, int block, int most);
  static PackedConvolution DataGradient(const MatmulKernels& kernels,
                                        const MatmulGeometry& geometry, int dy_parts, int w_parts,
                                        int block, int most);

  // The input of a forward pass as direct weight gradients read it: how it lies (a packed pixel
  // holds images_in_pixel() images), and where they find what taps meet.
  static PackedConvolution ForGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry,
                                       int block, int most);
  int images_in_pixel() const { return images_in_pixel_; }
  const PackedFrame& frame() const { return frame_; }
  int images_at_once() const { return at_once_; }
  int row_step() const { return row_step_; }
  std::int64_t PackedBytes(int images) const;  // of all blocks of channels
  void PackInput(TensorSpan in, int images, std::byte* packed) const;
  std::vector<std::int64_t> Steps(int images) const { return StepsOf(output_phases_[0], images); }
  const std::vector<std::uint8_t>& step_values() const { return output_phases_[0].step_values; }
  std::vector<ValidOutputs> ValidOutputsOfSteps() const;
  // The weight at which a step begins: its first input channel, and its place in the kernel.
  struct StepWeight {
    int channel = 0, weight = 0;
  };
  std::vector<StepWeight> StepWeights() const;
  // Where the weight of value i of x lies, relative to those of the same tap: i counts the channels
  // of a window's or a flattened image's pixels, one pixel after the other.
  std::int64_t WeightOf(std::int64_t i) const;

  void Prepare(int images) override;  // lists their row blocks
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
    int row, column;  // of the frame, relative to a row block's own
    int phase;
    int weight;               // ky * kernel width + kx; of a window the first
    ValidOutputs valid = {};  // of a window whatever the column
  };
  // Output positions of one stride phase: all of them in a forward pass.
  struct OutputPhase {
    int row = 0, column = 0, rows = 0, columns = 0;
    std::vector<Tap> taps;
    std::vector<std::uint8_t> step_values = {};  // channels of each step
    // Different lists of steps, one after the other, and those of each row block of an image.
    std::vector<std::int32_t> lists = {}, list_begins = {};
    std::vector<RowBlockSteps> row_block_steps = {};  // [row][columns / columns of a row block]
  };
  PackedConvolution(const MatmulKernels& kernels, const MatmulGeometry& geometry, int block);
  void SetShapes(const Shape& in, const Shape& out);
  void PlanForward();
  void PlanDataGradient();
  void FinishPlan(int in_parts, int pixel_channels);
  bool TakesDenseRows() const;
  ValidOutputs ValidOutputsOf(const OutputPhase& part, const Tap& tap) const;
  void ListSteps(OutputPhase& part) const;
  std::int64_t PlaneBytes(int images) const;
  std::vector<RowBlock> RowBlocksOf(const OutputPhase& part, int images) const;
  std::vector<std::int64_t> StepsOf(const OutputPhase& part, int images) const;
  void PrepareSome(int images);
  void PackTile(const float* plain, int out, int block, const Tap& tap, std::byte* tile) const;

  const MatmulKernels* kernels_;
  MatmulGeometry geometry_;                     // as a convolution
  std::int64_t weight_channels_, weight_taps_;  // of one output, in PyTorch's order
  int block_;                                   // images
  bool data_gradient_ = false;
  int images_in_pixel_ = 1;
  Shape in_, out_;                             // of one group of channels
  std::int64_t in_pixel_ = 0, out_pixel_ = 0;  // channels of all groups
  int w_parts_ = 1;
  PackedFrame frame_;
  int at_once_ = 1;                       // images whose packed input is in memory at a time
  int row_step_ = 1;                      // rows of the frame between rows of the output
  std::array<int, 2> out_step_ = {1, 1};  // of a part's rows and columns
  std::vector<OutputPhase> output_phases_;
  std::array<std::int64_t, 16> row_offsets_ = {};
  std::array<std::uint8_t, 16> row_blocks_ = {};
  std::int64_t group_weight_bytes_ = 0;  // of one group of channels
  struct Lists {
    std::vector<std::vector<RowBlock>> tiles;  // by part
    std::vector<std::vector<std::int64_t>> steps;
  };
  std::map<int, Lists> lists_;  // by images at a time
};

// A row block computes a step where any of its rows finds anything but the zeros around the image.
// The fewer columns it spans, the more steps it leaves out: a 3x3 kernel over images of 4x4 pixels
// takes 69 % of the multiplications where a row block spans one column (of 8 images), 83 % where it
// spans two or four. Fewer rows are left over, too: 28 columns of one image are computed as 32.
//
// How many images a call with `images` images interleaves, for a forward pass and for a data
// gradient: 1, 2, 4, 8 or 16, whichever takes the fewest multiplications. It is more than
// InterleavedImages only where there are so many and their packed input fits a core's own cache;
// with few channels to read it is always InterleavedImages.
int ImagesForOutputs(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images);
int ImagesForDataGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry, int images);
// A weight gradient sums row by row of the output and may leave out single positions, so it
// interleaves so many images that rows are long. images: those that packed pixels hold, one or two
// each.
int ImagesForLongRows(const MatmulGeometry& geometry, int images);

}  // namespace ada::backend::cpu
