// Chunks of convolutions of few channels a group (IsNarrow), in fp32: rows of the input wait in a
// ring, in fp32, while the rows of the output that need them are computed.
#pragma once
#include <array>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/kernels/depthwise.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/weight_copies.h"

namespace ada::backend::cpu {

// How rows and columns of an output meet those of an input under all taps, for a forward pass or
// for a data gradient, whose outputs take taps of their own in each stride phase.
// Fixed by the layer. Rows of the output ask for rows of the input in rising order, which is why a
// ring is enough.
struct DepthwisePlan {
  struct Tap {
    int row = 0, column = 0,
        weight = 0;  // of the input, relative to the output's; place in the kernel
  };
  struct OutputPhase {
    int row = 0, column = 0, columns = 0;  // the first of its outputs; how many in a row
    std::vector<Tap> taps;
  };
  Shape in, out;
  std::array<int, 2> in_step = {1, 1}, out_step = {1, 1};
  std::vector<OutputPhase> parts;
  int planes = 1;            // channels of a group
  int ring = 1;              // rows of the input
  int left = 0, pixels = 0;  // zeros before a row, and its pixels with all zeros

  static DepthwisePlan Forward(const MatmulGeometry& geometry);
  static DepthwisePlan DataGradient(const MatmulGeometry& geometry);
  // A row in the ring is [blocks of 16 channels][planes][pixels][16].
  std::int64_t plane_values() const { return std::int64_t{16} * pixels; }
  std::int64_t block_values() const { return planes * plane_values(); }
  int blocks() const { return QuotientUp(in.c, 16); }
  std::int64_t row_values() const { return blocks() * block_values(); }
  std::size_t ring_bytes() const;  // with a row of zeros

 private:
  void Finish();
};

class RowRing;

// It computes everything in fp32, whatever is not finite, so that it never declines a chunk.
class DepthwiseChunks final : public ChunkMatmul {
 public:
  // As OnednnChunks's. IsNarrow holds.
  DepthwiseChunks(const MatmulKernels& kernels, const Context& context, const MatmulSpec& spec,
                  const MatmulGeometry& geometry, const WeightCopies& weights,
                  MatmulRounding& rounding, int most, std::size_t offset);
  void Prepare(std::int64_t) override {}
  void Refresh() override;
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  struct Buffers {
    std::uint32_t* largest;  // by reduction block of the chunk
    float* values;           // of y or dx, before rounding
    float* ring;
    float* row;  // of dy
  };
  std::size_t Width() const;  // channels rounded up to 16
  int taps() const { return kernel_ * planes_; }
  Buffers BuffersOf(int worker) const;
  void Run(const DepthwisePlan& plan, const std::vector<float>& weights, const Chunk& chunk,
           const TensorSpan& in, int block, const Buffers& buffers, DepthwiseRowArgs args) const;
  void RunRow(const DepthwisePlan& plan, int y, RowRing& ring, const float* weights,
              DepthwiseRowArgs args) const;
  template <class Visit>
  void ForWeights(Visit&& visit) const;

  Context context_;
  const MatmulKernels& kernels_;
  const MatmulSpec& spec_;
  const WeightCopies& weights_;
  MatmulRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  const int kernel_, planes_;  // weights of a kernel; channels of a group
  DepthwisePlan forward_, data_;
  std::vector<float> forward_weights_, data_weights_;  // [blocks][kernel][planes][16]
  std::vector<float> bias_;                            // channels rounded up to 16
  bool weights_finite_ = true;
};

}  // namespace ada::backend::cpu
