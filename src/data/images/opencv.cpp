// Changes of bytes are tables of 256 entries; only saturation and hue need the way to HSV and back,
// row by row by the kernels of the best instruction set. To resize, both axes become lists of taps:
// a picture is resized across row by row, and down from the rows that are still held. Pixels are
// vectors of four floats, so that three channels are added at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "data/images/kernels/picture_kernels.h"
#include "data/images/random_changes.h"
#include "error.h"

namespace ada::data {
namespace {

constexpr int kOpenCvGroup = 32;  // pixels that it computes at a time
constexpr int kHues = 180;

using ByteTable = std::array<std::uint8_t, 256>;

// value * factor + shift in double, cut off to a byte.
ByteTable CutTable(double factor, double shift) {
  ByteTable table;
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] =
        static_cast<std::uint8_t>(std::clamp(static_cast<double>(i) * factor + shift, 0.0, 255.0));
  return table;
}

// Hues turn in a circle of 180; the remainder is taken twice as C++'s may be negative.
ByteTable HueTable(int turn) {
  ByteTable table;
  for (int i = 0; i < 256; ++i)
    table[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(((i + turn) % kHues + kHues) % kHues);
  return table;
}

// One row of a picture, and the changes that are made to it.
class Row {
 public:
  Row(std::uint8_t* begin, int width, HsvRounding rounding)
      : begin_(begin), width_(width), rounding_(rounding) {}

  void Map(const ByteTable& table) {
    for (std::uint8_t* at = begin_; at < begin_ + 3 * std::ptrdiff_t{width_}; ++at)
      *at = table[*at];
  }
  void ToHsv() { BestColorKernels().rgb_to_hsv(begin_, width_, begin_); }
  void ToRgb() {
    const ColorKernels& kernels = BestColorKernels();
    if (rounding_ == HsvRounding::kNearest) return kernels.hsv_to_rgb(begin_, width_, begin_);
    kernels.opencv_to_rgb(begin_, width_, width_ / kOpenCvGroup * kOpenCvGroup, begin_);
  }
  // ChainerCV goes to HSV and back once for saturation and once for hue, each with its rounding, so
  // two changes are two ways.
  void MapInHsv(int channel, const ByteTable& table) {
    ToHsv();
    for (std::uint8_t* at = begin_ + channel; at < begin_ + 3 * std::ptrdiff_t{width_}; at += 3)
      *at = table[*at];
    ToRgb();
  }

 private:
  std::uint8_t* begin_;
  int width_;
  HsvRounding rounding_;
};

template <class Change>
void ForEachRow(Picture* picture, HsvRounding rounding, const Change& change) {
  ADA_CHECK(picture->channels == 3);
  for (int y = 0; y < picture->height; ++y)
    change(Row(picture->pixels.data() + std::ptrdiff_t{3} * y * picture->width, picture->width,
               rounding));
}

// A pixel of 3 channels and one that nobody reads.
using Pixel [[gnu::vector_size(16)]] = float;

// How one axis becomes another: value o of the result is the sum over t < count[o] of
// in[first[o] + t] * weights[begin[o] + t].
struct Taps {
  std::vector<int> first, count, begin;
  std::vector<float> weights;
  int most = 0;

  // Weights of the places from `at` on, which may lie beyond the `size` places that there are: the
  // outermost ones are repeated.
  void Add(int at, const std::vector<double>& of, int size) {
    const auto inside = [size](int place) { return std::clamp(place, 0, size - 1); };
    const int low = inside(at), high = inside(at + static_cast<int>(of.size()) - 1);
    std::vector<double> sums(static_cast<std::size_t>(high - low + 1));
    for (std::size_t t = 0; t < of.size(); ++t)
      sums[static_cast<std::size_t>(inside(at + static_cast<int>(t)) - low)] += of[t];
    first.push_back(low);
    count.push_back(static_cast<int>(sums.size()));
    begin.push_back(static_cast<int>(weights.size()));
    weights.insert(weights.end(), sums.begin(), sums.end());
    most = std::max(most, count.back());
  }
};

// Returns the weights of the place before, both around the center, and the one after; they add up
// to 1 by the way in which the last one is made.
std::vector<double> CubicWeights(double f) {
  constexpr double a = -0.75;
  const auto near = [](double d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [](double d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  const double before = far(f + 1), here = near(f), next = near(1 - f);
  return {before, here, next, 1 - (before + here + next)};
}

// The weights of the places from 3 before to 4 after.
std::vector<double> LanczosWeights(double f) {
  constexpr double kNothing = 1.1920929e-07;  // fp32's epsilon
  std::vector<double> weights(8, 0.0);
  if (f < kNothing) {
    weights[3] = 1;
    return weights;
  }
  double sum = 0;
  for (int t = 0; t < 8; ++t) {
    const double x = std::numbers::pi * (f - (t - 3));
    double& weight = weights[static_cast<std::size_t>(t)];
    weight = std::abs(x) > 1e-12 ? 4 * std::sin(x) * std::sin(x / 4) / (x * x) : 1.0;
    sum += weight;
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// What pixel `o` of the smaller axis covers of the larger one.
void AddCovered(int o, double scale, int from, Taps* taps) {
  constexpr double kNothing = 1e-9;
  const double begin = o * scale, end = std::min((o + 1) * scale, static_cast<double>(from));
  const int first = static_cast<int>(std::floor(begin));
  // Rounding of `scale` may leave a sliver of the next pixel, which kNothing keeps out.
  const int last = std::max(first + 1, std::min(static_cast<int>(std::ceil(end - kNothing)), from));
  std::vector<double> weights;
  double sum = 0;
  for (int i = first; i < last; ++i) {
    weights.push_back(std::min(end, i + 1.0) - std::max(begin, static_cast<double>(i)));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  taps->Add(first, weights, from);
}

// In OpenCV's arithmetic: the scale is the reciprocal of a quotient, places are fp32.
Taps MakeTaps(int from, int to, Interpolation kind, bool shrinks) {
  const double ratio = static_cast<double>(to) / from, scale = 1.0 / ratio;
  Taps taps;
  for (int o = 0; o < to; ++o) {
    if (kind == Interpolation::kNearest) {
      taps.Add(std::min(static_cast<int>(std::floor(o * scale)), from - 1), {1.0}, from);
      continue;
    }
    if (kind == Interpolation::kArea && shrinks) {
      AddCovered(o, scale, from, &taps);
      continue;
    }
    // OpenCV has no area to take a mean of where the picture grows: it interpolates linearly
    // between steps at whole pixels instead.
    const bool steps = kind == Interpolation::kArea;
    const auto center = static_cast<double>(static_cast<float>((o + 0.5) * scale - 0.5));
    const int at = static_cast<int>(std::floor(steps ? o * scale : center));
    double f = center - at;
    if (steps) {
      f = static_cast<double>(static_cast<float>((o + 1) - (at + 1) * ratio));
      f = f <= 0 ? 0 : f - std::floor(f);
    }
    if (kind == Interpolation::kCubic) {
      taps.Add(at - 1, CubicWeights(f), from);
    } else if (kind == Interpolation::kLanczos4) {
      taps.Add(at - 3, LanczosWeights(f), from);
    } else {
      taps.Add(at, {1 - f, f}, from);
    }
  }
  return taps;
}

// Rows of a part of a canvas, resized across; the last ones are kept. Rows are asked for in rising
// order, with a few asked for again by the next result: `kept` rows, the most that one result
// reads, are held in a ring. Canvas, part and taps must outlive it.
class RowsAcross {
 public:
  RowsAcross(const Canvas& canvas, const Box& part, const Taps& across, int kept)
      : canvas_(canvas),
        part_(part),
        across_(across),
        width_(across.first.size()),
        line_(static_cast<std::size_t>(part.width)),
        rows_(static_cast<std::size_t>(kept + 1) * width_),
        held_(static_cast<std::size_t>(kept), -1) {
    line_.assign(line_.size(), ColorPixel());
    ResizeLine(rows_.data());  // the first of them: of canvas alone
  }

  // Returns a row of the part, resized; valid until `kept` other rows were asked for.
  const Pixel* Get(int row) {
    const int in_picture = part_.top + row - canvas_.top;
    if (in_picture < 0 || in_picture >= canvas_.picture->height) return rows_.data();
    const auto slot = static_cast<std::size_t>(row) % held_.size();
    Pixel* resized = rows_.data() + (slot + 1) * width_;
    if (held_[slot] == row) return resized;
    held_[slot] = row;
    FillLine(in_picture);
    ResizeLine(resized);
    return resized;
  }

 private:
  Pixel ColorPixel() const {
    return Pixel{canvas_.color[0], canvas_.color[1], canvas_.color[2], 0};
  }

  // Beside the picture the line stays as it was made.
  void FillLine(int row) {
    const Picture& picture = *canvas_.picture;
    const int left = canvas_.left - part_.left;  // of the picture in the part
    const int begin = std::clamp(left, 0, part_.width);
    const int end = std::clamp(left + picture.width, begin, part_.width);
    const std::uint8_t* in =
        picture.pixels.data() + 3 * (std::int64_t{row} * picture.width + (begin - left));
    for (int x = begin; x < end; ++x, in += 3)
      line_[static_cast<std::size_t>(x)] =
          Pixel{static_cast<float>(in[0]), static_cast<float>(in[1]), static_cast<float>(in[2]), 0};
  }

  void ResizeLine(Pixel* out) const {
    for (std::size_t x = 0; x < width_; ++x) {
      const Pixel* in = line_.data() + across_.first[x];
      const float* weights = across_.weights.data() + across_.begin[x];
      Pixel sum{};
      for (int t = 0; t < across_.count[x]; ++t) sum += in[t] * weights[t];
      out[x] = sum;
    }
  }

  const Canvas& canvas_;
  const Box& part_;
  const Taps& across_;
  std::size_t width_;
  std::vector<Pixel> line_, rows_;
  std::vector<int> held_;  // which row each slot has; -1: none
};

}  // namespace

void RgbToHsv(Picture* picture) {
  ForEachRow(picture, HsvRounding::kNearest, [](Row row) { row.ToHsv(); });
}

void HsvToRgb(Picture* picture, HsvRounding rounding) {
  ForEachRow(picture, rounding, [](Row row) { row.ToRgb(); });
}

Distortion DrawDistortion(const DistortSpec& spec, Draws* draws) {
  Distortion drawn;
  // Whether a change is made is drawn before its amount, and no amount is drawn where it is not:
  // recorded draws have this order.
  const auto uniform = [&](const Range& range) -> std::optional<double> {
    if (draws->Below(2) == 0) return std::nullopt;
    return static_cast<double>(
        draws->Uniform(static_cast<float>(range.low), static_cast<float>(range.high)));
  };
  const auto draw_colors = [&] {
    drawn.saturation = uniform(spec.saturation);
    if (draws->Below(2) != 0) drawn.hue = draws->Below(2 * spec.hue + 1) - spec.hue;
  };
  drawn.brightness = uniform({-spec.brightness, spec.brightness});
  drawn.contrast_first = draws->Below(2) != 0;
  if (!drawn.contrast_first) draw_colors();
  drawn.contrast = uniform(spec.contrast);
  if (drawn.contrast_first) draw_colors();
  return drawn;
}

void Distort(const Distortion& drawn, HsvRounding rounding, Picture* picture) {
  const ByteTable contrast = CutTable(drawn.contrast.value_or(1), 0);
  const ByteTable saturation = CutTable(drawn.saturation.value_or(1), 0);
  const ByteTable hue = HueTable(drawn.hue.value_or(0));
  const bool contrast_before = drawn.contrast && drawn.contrast_first;
  const bool contrast_after = drawn.contrast && !drawn.contrast_first;
  ByteTable before = CutTable(1, drawn.brightness.value_or(0));  // both steps of a byte at once
  if (contrast_before)
    for (std::uint8_t& value : before) value = contrast[value];
  ForEachRow(picture, rounding, [&](Row row) {
    if (drawn.brightness || contrast_before) row.Map(before);
    if (drawn.saturation) row.MapInHsv(1, saturation);
    if (drawn.hue) row.MapInHsv(0, hue);
    if (contrast_after) row.Map(contrast);
  });
}

std::vector<float> ResizeToFloats(const Canvas& canvas, const Box& part, PictureSize to,
                                  Interpolation interpolation) {
  ADA_CHECK(canvas.picture->channels == 3 && part.height > 0 && part.width > 0);
  ADA_CHECK(part.top >= 0 && part.left >= 0 && part.top + part.height <= canvas.size.height &&
            part.left + part.width <= canvas.size.width);
  // OpenCV decides once for both axes: kArea takes means only where neither axis grows.
  const bool shrinks = part.height >= to.height && part.width >= to.width;
  const Taps across = MakeTaps(part.width, to.width, interpolation, shrinks);
  const Taps down = MakeTaps(part.height, to.height, interpolation, shrinks);
  RowsAcross rows(canvas, part, across, down.most);
  const auto width = static_cast<std::size_t>(to.width);
  std::vector<float> out(static_cast<std::size_t>(to.height) * width * 3);
  std::vector<Pixel> sums(width);
  float* at = out.data();
  for (std::size_t y = 0; y < down.first.size(); ++y) {
    std::fill(sums.begin(), sums.end(), Pixel{});
    for (int t = 0; t < down.count[y]; ++t) {
      const float weight = down.weights[static_cast<std::size_t>(down.begin[y] + t)];
      const Pixel* row = rows.Get(down.first[y] + t);
      for (std::size_t x = 0; x < width; ++x) sums[x] += row[x] * weight;
    }
    for (std::size_t x = 0; x < width; ++x, at += 3) std::memcpy(at, &sums[x], 3 * sizeof(float));
  }
  return out;
}

}  // namespace ada::data
