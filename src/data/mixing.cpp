// Draws from Beta(alpha, alpha) as X / (X + Y) of two gamma variables, in logarithms, since alpha
// may be so small that both are below fp64's smallest number.
#include <algorithm>
#include <cmath>
#include <vector>

#include "data/batch.h"
#include "number/random.h"

namespace ada::data {
namespace {

// In (0, 1), 24 bits.
double OpenUniform(RandomStream& random) {
  return (static_cast<double>(random.NextU32() >> 8) + 0.5) / 16777216.0;
}

// The logarithm of a number from Gamma(alpha, 1), alpha >= 1: Marsaglia and Tsang (2000).
double LogGammaDrawFromOne(RandomStream& random, double alpha) {
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.Normal(), root = 1 + c * x;
    // The cube is a proposal only where it is positive.
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(OpenUniform(random)) < x * x / 2 + d - d * v + d * std::log(v))
      return std::log(d * v);
  }
}
// Parts of a number from Gamma(alpha, 1), alpha < 1, whose logarithm is log + log_uniform / alpha.
struct GammaParts {
  double log = 0, log_uniform = 0;
};
GammaParts DrawGammaParts(RandomStream& random, double alpha) {
  GammaParts parts;
  parts.log = LogGammaDrawFromOne(random, alpha + 1);
  parts.log_uniform = std::log(OpenUniform(random));
  return parts;
}
// From Beta(alpha, alpha): 0 or 1 where alpha is tiny, a coin's toss. Gamma(alpha) is then what
// Gamma(alpha + 1) is times u^(1 / alpha), and only the difference of the logarithms of two has a
// sense where each of them is below fp64's range.
double BetaDraw(RandomStream& random, double alpha) {
  if (alpha >= 1) {
    const double a = LogGammaDrawFromOne(random, alpha), b = LogGammaDrawFromOne(random, alpha);
    return 1 / (1 + std::exp(b - a));
  }
  const GammaParts a = DrawGammaParts(random, alpha), b = DrawGammaParts(random, alpha);
  const double from_a = a.log + a.log_uniform / alpha, from_b = b.log + b.log_uniform / alpha;
  const double difference = std::isfinite(from_a) && std::isfinite(from_b)
                                ? from_b - from_a
                                : b.log - a.log + (b.log_uniform - a.log_uniform) / alpha;
  return 1 / (1 + std::exp(difference));
}

// The box as torchvision's CutMix has it: its center is uniform over all pixels, half its sides are
// whole numbers, and it is cut off at the edges, so that it may be smaller than drawn, or empty.
MixBox DrawBox(RandomStream& random, double side, const MixedShape& shape) {
  const auto x = static_cast<std::int64_t>(random.Below(static_cast<std::uint32_t>(shape.width)));
  const auto y = static_cast<std::int64_t>(random.Below(static_cast<std::uint32_t>(shape.height)));
  const auto half_w = static_cast<std::int64_t>(side / 2 * static_cast<double>(shape.width));
  const auto half_h = static_cast<std::int64_t>(side / 2 * static_cast<double>(shape.height));
  return {std::max<std::int64_t>(y - half_h, 0), std::max<std::int64_t>(x - half_w, 0),
          std::min(y + half_h, shape.height), std::min(x + half_w, shape.width)};
}

// The order of the operands is torchvision's: the rolled image times 1 - share, plus the image
// times share.
void Blend(float* row, const float* other, std::int64_t n, float share) {
  const float rest = 1 - share;
  for (std::int64_t i = 0; i < n; ++i) row[i] = other[i] * rest + row[i] * share;
}

void Paste(float* row, const float* other, const MixBox& box, const MixedShape& shape) {
  for (std::int64_t y = box.top; y < box.bottom; ++y) {
    const std::int64_t at = (y * shape.width + box.left) * shape.channels;
    std::copy_n(other + at, (box.right - box.left) * shape.channels, row + at);
  }
}

}  // namespace

MixDraw DrawMix(const Mixing& mixing, std::uint64_t seed, std::int64_t sequence,
                const MixedShape& shape) {
  MixDraw draw;
  if (!mixing.any()) return draw;
  // A separate stream for each batch, because the number of words that a draw needs varies.
  RandomStream random(seed ^ StreamId("mix"), static_cast<std::uint64_t>(sequence));
  const double mixup = mixing.mixup_alpha > 0 ? mixing.mixup_p : 0;
  const double cutmix = mixing.cutmix_alpha > 0 ? mixing.cutmix_p : 0;
  // One word decides which of the two it is, so that their shares of the batches add up.
  const auto coin = static_cast<double>(random.Uniform());
  if (coin < mixup) {
    draw.kind = MixDraw::Kind::kMixup;
    draw.share = BetaDraw(random, mixing.mixup_alpha);
  } else if (coin < mixup + cutmix) {
    draw.kind = MixDraw::Kind::kCutmix;
    const double side = std::sqrt(1 - BetaDraw(random, mixing.cutmix_alpha));
    draw.box = DrawBox(random, side, shape);
    const auto area =
        static_cast<double>((draw.box.bottom - draw.box.top) * (draw.box.right - draw.box.left));
    // After the cut at the edges the share is no longer the draw, but what the box leaves.
    draw.share = 1 - area / static_cast<double>(shape.height * shape.width);
  }
  return draw;
}

void MixBatch(const Mixing& mixing, std::uint64_t seed, std::int64_t sequence,
              const MixedShape& shape, Batch* batch) {
  batch->second_labels.clear(), batch->shares.clear();
  const MixDraw draw = DrawMix(mixing, seed, sequence, shape);
  if (draw.kind == MixDraw::Kind::kNone || batch->rows == 0) return;
  const auto rows = static_cast<std::size_t>(batch->rows);
  const auto share = static_cast<float>(draw.share);
  batch->second_labels.resize(rows);
  for (std::size_t row = 0; row < rows; ++row)
    batch->second_labels[row] = batch->labels[(row + rows - 1) % rows];
  batch->shares.assign(rows, share);

  const std::int64_t n = shape.height * shape.width * shape.channels;
  const auto image = [&](std::size_t row) {
    return batch->images.data() + static_cast<std::int64_t>(row) * n;
  };
  const auto mix = [&](float* row, const float* other) {
    if (draw.kind == MixDraw::Kind::kMixup) Blend(row, other, n, share);
    if (draw.kind == MixDraw::Kind::kCutmix) Paste(row, other, draw.box, shape);
  };
  // From the last row up, so that each meets the one before it as it was.
  const std::vector<float> last(image(rows - 1), image(rows - 1) + n);
  for (std::size_t row = rows - 1; row > 0; --row) mix(image(row), image(row - 1));
  mix(image(0), last.data());
}

}  // namespace ada::data
