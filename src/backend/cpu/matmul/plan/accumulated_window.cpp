// Windows of x are copied in the order in which their products are added: channels within taps.
#include <algorithm>

#include "backend/cpu/matmul/plan/accumulated_chunks.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"

namespace ada::backend::cpu {

AccumulatedWindow::AccumulatedWindow(const MatmulGeometry& given) {
  const MatmulGeometry g = given.transposed ? ConvolutionOf(given) : given;
  big_ = g.x, small_ = g.y;
  kernel_ = {static_cast<int>(g.w.h), static_cast<int>(g.w.w)};
  stride_ = g.stride, padding_ = g.padding, dilation_ = g.dilation;
  groups_ = g.groups;
  features_ = g.linear;
}

std::int64_t AccumulatedWindow::InBig(std::int64_t pixel, std::int64_t tap) const {
  const std::int64_t h =
      pixel / small_.w * stride_[0] - padding_[0] + tap / kernel_[1] * dilation_[0];
  const std::int64_t w =
      pixel % small_.w * stride_[1] - padding_[1] + tap % kernel_[1] * dilation_[1];
  const bool inside = h >= 0 && h < big_.h && w >= 0 && w < big_.w;
  return inside ? h * big_.w + w : -1;
}

std::int64_t AccumulatedWindow::InSmall(std::int64_t pixel, std::int64_t tap) const {
  const std::int64_t h = pixel / big_.w + padding_[0] - tap / kernel_[1] * dilation_[0];
  const std::int64_t w = pixel % big_.w + padding_[1] - tap % kernel_[1] * dilation_[1];
  if (h < 0 || w < 0 || h % stride_[0] != 0 || w % stride_[1] != 0) return -1;
  const bool inside = h / stride_[0] < small_.h && w / stride_[1] < small_.w;
  return inside ? h / stride_[0] * small_.w + w / stride_[1] : -1;
}

std::vector<std::int64_t> AccumulatedWindow::BlocksOf(Toward toward, std::int64_t block) const {
  const std::int64_t runs = features_ ? 1 : taps(), length = terms(toward) / runs;
  std::vector<std::int64_t> begins;
  for (std::int64_t run = 0; run < runs; ++run)
    for (std::int64_t at = 0; at < length; at += block) begins.push_back(run * length + at);
  begins.push_back(runs * length);
  return begins;
}

CodeBlock TakeCodes(std::byte*& memory, std::int64_t values) {
  CodeBlock block;
  block.values = reinterpret_cast<float*>(memory);
  block.exponents =
      reinterpret_cast<std::int16_t*>(memory + WholeLines(static_cast<std::size_t>(values) * 4));
  memory += BytesOfCodes(values);
  return block;
}

WeightPanels::WeightPanels(const AccumulatedWindow& window, Toward toward)
    : window_(window),
      toward_(toward),
      by_pixel_(window.IsByPixel(toward)),
      k_(window.terms(toward)),
      outputs_(toward == Toward::kSmall ? window.out_group() : window.in_group()) {
  const auto count = static_cast<std::size_t>(sets() * panels() * k_ * kPanel);
  values_.resize(count);
  exponents_.assign(count, kExponentOfZero);
}

const float* WeightPanels::values(std::int64_t set, std::int64_t panel) const {
  return values_.data() + At(set, panel);
}
const std::int16_t* WeightPanels::exponents(std::int64_t set, std::int64_t panel) const {
  return exponents_.data() + At(set, panel);
}

std::size_t WeightPanels::WeightAt(std::int64_t set, std::int64_t place,
                                   std::int64_t output) const {
  if (by_pixel_) return static_cast<std::size_t>(window_.Weight(0, place, output, set));
  const auto [tap, c] = window_.At(place, window_.channels(toward_));
  return static_cast<std::size_t>(toward_ == Toward::kSmall ? window_.Weight(set, output, c, tap)
                                                            : window_.Weight(set, c, output, tap));
}

void WeightPanels::Pack(const Context& context, const CodesOf& codes, const float* plain,
                        const float* scales, const std::vector<std::int64_t>& blocks) {
  const std::int64_t count = sets() * k_ * outputs_;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::vector<std::int16_t> exponents(values.size());
  largest_ = ToCodes(context, codes, {const_cast<float*>(plain), Storage::kF32}, count,
                     values.data(), exponents.data(), scales);
  blocks_ = blocks.empty() ? 0 : blocks.size() - 1;
  scales_.assign(static_cast<std::size_t>(sets() * panels()) * blocks_ * kPanel, codes.inverse());
  context.pool.For(sets() * panels(), [&](std::int64_t i, int) {
    const std::int64_t set = i / panels(), panel = i % panels();
    const std::int64_t lanes = std::min<std::int64_t>(kPanel, outputs_ - panel * kPanel);
    float* to = values_.data() + At(set, panel);
    std::int16_t* to_exponents = exponents_.data() + At(set, panel);
    for (std::size_t block = 0; scales != nullptr && block < blocks_; ++block) {
      float* to_scales = scales_.data() + (static_cast<std::size_t>(i) * blocks_ + block) * kPanel;
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        to_scales[lane] = scales[WeightAt(set, blocks[block], panel * kPanel + lane)];
    }
    for (std::int64_t place = 0; place < k_; ++place) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::size_t from = WeightAt(set, place, panel * kPanel + lane);
        to[place * kPanel + lane] = values[from];
        to_exponents[place * kPanel + lane] = exponents[from];
      }
    }
  });
}

void GatherRow(const AccumulatedWindow& window, Toward toward, std::int64_t group,
               std::int64_t pixel, const CodeBlock& source, const CodeBlock& row) {
  const bool to_small = toward == Toward::kSmall;
  const std::int64_t channels = window.channels(toward);
  if (window.IsByPixel(toward)) {  // they meet the only pixel of the smaller side
    std::copy_n(source.values, channels, row.values);
    std::copy_n(source.exponents, channels, row.exponents);
    return;
  }
  const std::int64_t all = to_small ? window.big().c : window.small().c;
  for (std::int64_t tap = 0; tap < window.taps(); ++tap) {
    const std::int64_t at = to_small ? window.InBig(pixel, tap) : window.InSmall(pixel, tap);
    const CodeBlock from = source.From(at * all + group * channels);
    if (window.channels_lie_together()) {
      const CodeBlock to = row.From(tap * channels);
      if (at < 0) {
        std::fill_n(to.values, channels, 0.0f);
        std::fill_n(to.exponents, channels, kExponentOfZero);
      } else {
        std::copy_n(from.values, channels, to.values);
        std::copy_n(from.exponents, channels, to.exponents);
      }
      continue;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t place = window.Place(tap, c, channels);
      row.values[place] = at < 0 ? 0.0f : from.values[c];
      row.exponents[place] = at < 0 ? kExponentOfZero : from.exponents[c];
    }
  }
}

}  // namespace ada::backend::cpu
