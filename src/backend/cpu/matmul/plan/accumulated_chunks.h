// Computes the products of a layer whose sums an accumulator makes (MatmulSpec::sums); those whose
// sums are fp32 are left to another way of computing chunks. Sums that are judged are made in
// addition, and only counted.
//
// Convolutions and linear layers as matrices that an accumulator's kernels read: which value a row
// has at which place of its sum, and weights in panels of sixteen outputs.
//
//   forward   rows: pixels of y, sums over the taps of the window and the channels of x within them
//   data      rows: pixels of x, sums over the taps and the channels of y within them; of a linear
//             layer over the channels of y alone
//   weights   rows: channels of y, columns: taps and channels of x within them, sums over pixels
//
// In a transposed convolution x and y change places (ConvolutionOf).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/batch_operands.h"
#include "backend/cpu/matmul/pack/operand_steps.h"
#include "backend/cpu/matmul/pack/weight_copies.h"

namespace ada::backend::cpu {

// Which of the two products with the weights.
enum class Toward : std::uint8_t { kSmall, kBig };

// The convolution, from `big` to `small`. A linear layer of an image is one whose window is all of
// the image; the places of its sum are those of PyTorch's features: channel, row, column.
class AccumulatedWindow {
 public:
  explicit AccumulatedWindow(const MatmulGeometry& geometry);

  const Shape& big() const { return big_; }
  const Shape& small() const { return small_; }
  int groups() const { return groups_; }
  std::int64_t taps() const { return kernel_[0] * kernel_[1]; }
  std::int64_t in_group() const { return big_.c / groups_; }     // channels of big
  std::int64_t out_group() const { return small_.c / groups_; }  // channels of small

  // The pixel of big (or of small) that the tap meets at a pixel of the other; -1: none.
  std::int64_t InBig(std::int64_t pixel, std::int64_t tap) const;
  std::int64_t InSmall(std::int64_t pixel, std::int64_t tap) const;
  // Where tap and channel, of `channels`, stand in a sum or among columns.
  std::int64_t Place(std::int64_t tap, std::int64_t channel, std::int64_t channels) const {
    return features_ ? channel * taps() + tap : tap * channels + channel;
  }
  struct TapAndChannel {
    std::int64_t tap, channel;
  };
  TapAndChannel At(std::int64_t place, std::int64_t channels) const {
    if (features_) return {place % taps(), place / taps()};
    return {place / channels, place % channels};
  }
  // Where blocks of `block` values begin in a sum, and its end. Blocks lie within a tap; those of a
  // linear layer's y run through all features.
  std::vector<std::int64_t> BlocksOf(Toward toward, std::int64_t block) const;
  bool is_linear() const { return features_; }
  // Whether sums have no taps, but each pixel of the result weights of its own: a linear layer's
  // dx.
  bool IsByPixel(Toward toward) const { return features_ && toward == Toward::kBig; }
  // Channels behind one value of the result, and the length of its sum.
  std::int64_t channels(Toward toward) const {
    return toward == Toward::kSmall ? in_group() : out_group();
  }
  std::int64_t terms(Toward toward) const {
    return IsByPixel(toward) ? channels(toward) : taps() * channels(toward);
  }
  bool channels_lie_together() const { return !features_ || taps() == 1; }
  // The weight between them in PyTorch's order.
  std::int64_t Weight(std::int64_t group, std::int64_t out, std::int64_t in,
                      std::int64_t tap) const {
    return ((group * out_group() + out) * in_group() + in) * taps() + tap;
  }

 private:
  Shape big_, small_;
  std::array<int, 2> kernel_, stride_, padding_, dilation_;
  int groups_;
  bool features_;
};

// Codes in memory, with their exponents.
struct CodeBlock {
  float* values;
  std::int16_t* exponents;
  CodeBlock From(std::int64_t value) const { return {values + value, exponents + value}; }
};
inline std::size_t BytesOfCodes(std::int64_t values) {
  return WholeLines(static_cast<std::size_t>(values) * 4) +
         WholeLines(static_cast<std::size_t>(values) * 2);
}
// Takes so many values from `memory`, which is moved on.
CodeBlock TakeCodes(std::byte*& memory, std::int64_t values);

// The weights of one of them as columns of a matrix [k, outputs], in panels: a set for each group
// of channels or, by pixel, for each pixel of the result.
class WeightPanels {
 public:
  WeightPanels(const AccumulatedWindow& window, Toward toward);
  // From weights in PyTorch's order, as they are multiplied.
  // scales: of each weight, where codes have blocks, which begin at `blocks`.
  void Pack(const Context& context, const CodesOf& codes, const float* plain, const float* scales,
            const std::vector<std::int64_t>& blocks);
  // The scales of a block of a panel, [kPanel].
  const float* scales(std::int64_t set, std::int64_t panel, std::size_t block) const {
    return scales_.data() +
           ((static_cast<std::size_t>(set * panels() + panel)) * blocks_ + block) * kPanel;
  }
  std::int64_t sets() const { return by_pixel_ ? window_.taps() : window_.groups(); }
  std::int64_t k() const { return k_; }
  std::int64_t outputs() const { return outputs_; }                         // of a set
  std::int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }  // of a set
  const float* values(std::int64_t set, std::int64_t panel) const;
  const std::int16_t* exponents(std::int64_t set, std::int64_t panel) const;
  int largest() const { return largest_; }
  std::size_t bytes() const { return values_.size() * 4 + exponents_.size() * 2; }

 private:
  std::size_t At(std::int64_t set, std::int64_t panel) const {
    return static_cast<std::size_t>((set * panels() + panel) * k_ * kPanel);
  }
  // Returns where in PyTorch's order the weight lies between a place of a set's sum and an output.
  std::size_t WeightAt(std::int64_t set, std::int64_t place, std::int64_t output) const;
  AccumulatedWindow window_;
  Toward toward_;
  bool by_pixel_;
  std::int64_t k_, outputs_;
  std::vector<float, PageAllocator<float, PageKind::kHuge>> values_;
  std::vector<std::int16_t> exponents_;
  std::vector<float> scales_;
  std::size_t blocks_ = 0;
  int largest_ = kExponentOfZero;
};

// One row of the other matrix, [k]: what pixel `pixel` of an image of the result meets of `group`
// in `source`, the codes of an image of the other side.
void GatherRow(const AccumulatedWindow& window, Toward toward, std::int64_t group,
               std::int64_t pixel, const CodeBlock& source, const CodeBlock& row);

// Sums are made row by row against panels of sixteen outputs; dw is made slice by slice (some of
// its rows with one panel of its columns), each over all images, since its sums run through them.
class AccumulatedChunks final : public ChunkMatmul {
 public:
  // spec: the layer's own, whose operands say what codes are. most, offset: as of KernelChunks.
  // others: for the products with fp32 sums. Keeps references.
  AccumulatedChunks(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
                    WeightCopies& weights, const BatchOperands& operands, MatmulRounding& rounding,
                    int most, std::size_t offset, std::unique_ptr<ChunkMatmul> others);
  ~AccumulatedChunks() override;
  AccumulatedChunks(const AccumulatedChunks&) = delete;
  void Prepare(std::int64_t images) override;
  void Refresh() override;
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  int slices() const override;
  bool whole_batch() const override { return Makes(scaling::LayerMatmul::kDw); }
  void WeightSlice(int slice, const Chunk& batch, const TensorSpan& x, const TensorSpan& dy,
                   float* partial) override;
  bool sparse_sums_are_inexact() const override;
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;
  int judged_slices(const Pass& pass) const override;
  void JudgeSlice(int slice, const Chunk& batch, const TensorSpan& x,
                  const TensorSpan& dy) override;
  void FinishForward(const Pass& pass) override;
  void FinishBackward(const Pass& pass) override;

 private:
  // One matmul with the weights: its rule, its operands, and the weights in panels.
  struct Rows {
    scaling::LayerMatmul matmul;
    Toward toward;
    CodesOf of_batch, of_weights;
    WeightPanels panels;
    // Where blocks with scales of their own begin in a sum, and its end; empty: there are none.
    std::vector<std::int64_t> blocks;
  };
  Rows RowsOf(scaling::LayerMatmul matmul, Toward toward, Operand batch, Operand weights) const;
  bool Makes(scaling::LayerMatmul matmul) const {
    return spec_.sums[scaling::IndexOf(matmul)].rule.has_value();
  }
  bool Counts(scaling::LayerMatmul matmul, const Pass& pass) const {
    return pass.count && spec_.sums[scaling::IndexOf(matmul)].counts != nullptr;
  }
  const std::vector<JudgedSums>& Judged(scaling::LayerMatmul matmul) const {
    return spec_.sums[scaling::IndexOf(matmul)].judged;
  }
  // Whether codes of the matmul are needed at all.
  bool Takes(scaling::LayerMatmul matmul) const { return Makes(matmul) || !Judged(matmul).empty(); }
  // Counts by chunk or slice; rule 0 is the matmul's own, those that are judged follow.
  scaling::AccumulatorCounts& CountsAt(scaling::LayerMatmul matmul, std::size_t rule,
                                       std::int64_t part) {
    return counts_[scaling::IndexOf(matmul)]
                  [rule * parts_[scaling::IndexOf(matmul)] + static_cast<std::size_t>(part)];
  }
  std::size_t RowBytes(const Rows& rows) const;
  std::size_t SliceBytes() const;
  // Sums of all pixels of the chunk, [images, pixels, channels] of the result, in scratch memory.
  // counts: null, or where what they lost is added.
  float* RowSums(const Rows& rows, const scaling::Accumulator& rule,
                 scaling::AccumulatorCounts* counts, const Chunk& chunk, const TensorSpan& batch);
  void JudgeRows(const Rows& rows, const Chunk& chunk, const TensorSpan& batch);
  std::int64_t weight_slices() const;
  // partial: null where sums are counted alone.
  void SumSlice(const scaling::Accumulator& rule, std::int64_t slice,
                scaling::AccumulatorCounts* counts, const Chunk& batch, const TensorSpan& x,
                const TensorSpan& dy, float* partial);
  void Finish(scaling::LayerMatmul matmul, const Pass& pass);
  void Total(scaling::LayerMatmul matmul, std::size_t rule, scaling::AccumulatorCounts& to);

  Context context_;
  MatmulSpec spec_;
  AccumulatedWindow window_;
  bool transposed_;
  WeightCopies& weights_;
  const BatchOperands& operands_;
  MatmulRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  std::unique_ptr<ChunkMatmul> others_;
  std::optional<Rows> forward_, data_;
  CodesOf dw_x_, dw_dy_;
  // By matmul, then by rule and chunk or slice: added up in that order.
  std::array<std::vector<scaling::AccumulatorCounts>, scaling::kLayerMatmuls> counts_;
  std::array<std::size_t, scaling::kLayerMatmuls> parts_{};  // chunks or slices
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu
