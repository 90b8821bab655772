// Convolutions and linear layers as matrices that an accumulator's kernels read: which value a row
// has at which place of its sum, and weights in panels of sixteen outputs.
//
//   forward   rows: pixels of y, sums over the taps of the window and the channels of x within them
//   data      rows: pixels of x, sums over the taps and the channels of y within them (of a linear
//             layer over these alone)
//   weights   rows: channels of y, columns: taps and channels of x within them, sums over pixels
//
// In a transposed convolution x and y change places (ConvolutionOf).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/accumulate_kernels.h"
#include "backend/cpu/context.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/pack/codes.h"

namespace ada::backend::cpu {

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
  // Where blocks of `block` values begin in a sum of so many channels, and its end. Blocks lie
  // within a tap; those of a linear layer run through all features.
  std::vector<std::int64_t> BlocksOf(std::int64_t channels, std::int64_t block) const;
  // A linear layer of an image as one of its features, which lie as PyTorch has them.
  AccumulatedWindow OfFeatures() const;
  bool is_linear() const { return features_; }
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

// Which of the two products with the weights.
enum class Toward : std::uint8_t { kSmall, kBig };

// The weights of one of them as columns of a matrix [k, outputs], in panels.
class WeightPanels {
 public:
  WeightPanels(const AccumulatedWindow& window, Toward toward);
  // From weights in PyTorch's order, as they are multiplied.
  // scales: of each weight, where codes have blocks, which begin at `blocks`.
  void Pack(const Context& context, const CodesOf& codes, const float* plain, const float* scales,
            const std::vector<std::int64_t>& blocks);
  // The scales of a block of a panel, [kPanel].
  const float* scales(std::int64_t group, std::int64_t panel, std::size_t block) const {
    return scales_.data() +
           ((static_cast<std::size_t>(group * panels() + panel)) * blocks_ + block) * kPanel;
  }
  std::int64_t k() const { return k_; }
  std::int64_t outputs() const { return outputs_; }                         // of a group
  std::int64_t panels() const { return (outputs_ + kPanel - 1) / kPanel; }  // of a group
  const float* values(std::int64_t group, std::int64_t panel) const;
  const std::int16_t* exponents(std::int64_t group, std::int64_t panel) const;
  int largest() const { return largest_; }
  std::size_t bytes() const { return values_.size() * 4 + exponents_.size() * 2; }

 private:
  std::size_t At(std::int64_t group, std::int64_t panel) const {
    return static_cast<std::size_t>((group * panels() + panel) * k_ * kPanel);
  }
  AccumulatedWindow window_;
  Toward toward_;
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

}  // namespace ada::backend::cpu
