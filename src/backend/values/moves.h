// Layers that move values: shortcut A (subsampling with channel padding), slice, select, flatten;
// and those that enlarge images: upsampling of the nearest pixel and bilinear, pixel shuffle. The
// position of each pixel between those of the original is the same on every backend: an integer
// over a common denominator, so that a weight is rounded to fp32 only once.
#pragma once
#include <cstdint>
#include <limits>

#include "backend/values/layer_values.h"
#include "error.h"
#include "number/host_device.h"

namespace ada::backend {

// Every stride-th pixel of x between `pad` channels of zeros.
struct Subsampled {
  static constexpr Makes kMakes = Makes::kMoves;
  ADA_VALUE ImageShape runs() const { return y; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    return {OffsetOf(x, {at.image, at.h * stride_h, at.w * stride_w}), pad, pad + x.c};
  }
  ImageShape x, y;
  int stride_h = 1, stride_w = 1, pad = 0;
};
// The inverse, for dy.
struct Spread : Subsampled {
  ADA_VALUE ImageShape runs() const { return x; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    const int h = at.h / stride_h, w = at.w / stride_w;
    // A pixel that subsampling left out has a zero gradient: an empty run.
    if (h * stride_h != at.h || w * stride_w != at.w || h >= y.h || w >= y.w) return {};
    return {OffsetOf(y, {at.image, h, w}) + pad, 0, x.c};
  }
};
template <>
struct LayerValues<ShortcutSpec> {
  static Subsampled Y(const ShortcutSpec& spec, const Pass&) { return Of(spec); }
  static Spread Dx(const ShortcutSpec& spec) { return {Of(spec)}; }
  static Subsampled Of(const ShortcutSpec& spec) {
    return {ImageOf(spec.x.shape), ImageOf(spec.y.shape), spec.stride[0], spec.stride[1],
            static_cast<int>((spec.y.shape.c - spec.x.shape.c) / 2)};
  }
};

// A part of each `whole` values of an image, from value `first` on.
struct PartOfRuns {
  static constexpr Makes kMakes = Makes::kMoves;
  ADA_VALUE ImageShape runs() const { return {1, parts, part}; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    return {(at.image * parts + at.w) * whole + first, 0, part};
  }
  int parts = 1, whole = 0, first = 0, part = 0;  // parts: of an image
};
// The inverse: such a part between zeros.
struct RunsOfPart : PartOfRuns {
  ADA_VALUE ImageShape runs() const { return {1, parts, whole}; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    return {(at.image * parts + at.w) * part, first, first + part};
  }
};
// For images of shape x and outputs of shape y, both made of `parts` runs.
inline PartOfRuns PartOf(const Shape& x, const Shape& y, std::int64_t parts, std::int64_t first) {
  ADA_CHECK(x.per_image() <= std::numeric_limits<std::int32_t>::max());
  return {static_cast<int>(parts), static_cast<int>(x.per_image() / parts), static_cast<int>(first),
          static_cast<int>(y.per_image() / parts)};
}
template <>
struct LayerValues<SliceSpec> {  // of each pixel some channels
  static PartOfRuns Y(const SliceSpec& spec, const Pass&) { return Of(spec); }
  static RunsOfPart Dx(const SliceSpec& spec) { return {Of(spec)}; }
  static PartOfRuns Of(const SliceSpec& spec) {
    return PartOf(spec.x.shape, spec.y.shape, spec.x.shape.h * spec.x.shape.w, spec.first);
  }
};
template <>
struct LayerValues<SelectSpec> {  // of each image one position
  static PartOfRuns Y(const SelectSpec& spec, const Pass&) { return Of(spec); }
  static RunsOfPart Dx(const SelectSpec& spec) { return {Of(spec)}; }
  static PartOfRuns Of(const SelectSpec& spec) {
    return PartOf(spec.x.shape, spec.y.shape, 1, spec.position * spec.x.shape.c);
  }
};

// Image by image the transpose of [rows, columns].
struct Transposed {
  static constexpr Makes kMakes = Makes::kMoves;
  ADA_VALUE ImageShape runs() const { return {1, columns, rows}; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    return {at.image * rows * columns + at.w, 0, rows, columns};
  }
  int rows = 1, columns = 1;
};
template <>
struct LayerValues<FlattenSpec> {
  static Transposed Y(const FlattenSpec& spec, const Pass&) {
    return {Pixels(spec), static_cast<int>(spec.x.shape.c)};
  }
  static Transposed Dx(const FlattenSpec& spec) {
    return {static_cast<int>(spec.x.shape.c), Pixels(spec)};
  }
  static int Pixels(const FlattenSpec& spec) {
    return static_cast<int>(spec.x.shape.h * spec.x.shape.w);
  }
};

// A position along one axis: between pixels `at` and `at` + 1, whose weights sum to 1. At the last
// pixel `above` is 0, and pixel `at` + 1 must not be read.
struct BetweenPixels {
  int at = 0;
  float below = 1, above = 0;
};

// What lies between two values, along one axis.
ADA_HOST_DEVICE static inline float Between(const BetweenPixels& place, float below, float above) {
  return place.above == 0 ? below : place.below * below + place.above * above;
}

// One axis of `in` pixels that becomes one of `out`. As in PyTorch: with align_corners the centers
// of the first and last pixels meet, o (in - 1) / (out - 1); else the edges do, (o + 1/2) in / out
// - 1/2, held within the pixels' centers.
struct InterpolatedAxis {
  std::int64_t in = 1, out = 1;
  bool align_corners = false;

  ADA_HOST_DEVICE BetweenPixels At(std::int64_t o) const {
    const std::int64_t over = align_corners ? (out > 1 ? out - 1 : 1) : 2 * out;
    std::int64_t place = align_corners ? o * (in - 1) : (2 * o + 1) * in - out;
    place = place < 0 ? 0 : place;
    const std::int64_t at = place / over;
    if (at >= in - 1) return {static_cast<int>(in - 1), 1, 0};
    const double above = static_cast<double>(place % over) / static_cast<double>(over);
    return {static_cast<int>(at), static_cast<float>(1 - above), static_cast<float>(above)};
  }
  // The weight of pixel i at output position o.
  ADA_HOST_DEVICE float Share(std::int64_t i, std::int64_t o) const {
    const BetweenPixels between = At(o);
    return between.at == i ? between.below : between.at + 1 == i ? between.above : 0.0f;
  }
  // The first place that lies at or after pixel i - 1 (and, of i + 2, the first one that pixel i
  // has no part in, where there are some).
  ADA_HOST_DEVICE std::int64_t FirstFrom(std::int64_t i) const {
    if (i <= 0) return 0;
    const std::int64_t place = i - 1;
    if (align_corners) {
      if (in == 1) return place > 0 ? out : 0;
      const std::int64_t first = (place * (out - 1) + in - 2) / (in - 1);
      return first < out ? first : out;
    }
    // ((2 o + 1) in - out) / (2 out) >= place, rounded up; places below 0 count as 0.
    if (place == 0) return 0;
    const std::int64_t first = (2 * place * out + out - in + 2 * in - 1) / (2 * in);
    return first < out ? first : out;
  }
};

// --- Layers ---

// Every pixel scale x scale times.
struct Repeated {
  static constexpr Makes kMakes = Makes::kMoves;
  ADA_VALUE ImageShape runs() const { return y; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    return {OffsetOf(x, {at.image, at.h / scale, at.w / scale}), 0, y.c};
  }
  ImageShape x, y;
  int scale = 1;
};
// The sum over a pixel's copies, row by row.
struct SumOfCopies {
  static constexpr Makes kMakes = Makes::kSums;
  ADA_VALUE ImageShape runs() const { return x; }
  template <class Visit>
  ADA_VALUE void ForTerms(const RunIndex& at, Visit&& visit) const {
    for (int r = 0; r < scale; ++r)
      for (int k = 0; k < scale; ++k)
        visit(OffsetOf(y, {at.image, at.h * scale + r, at.w * scale + k}), 1.0f);
  }
  ImageShape x, y;
  int scale = 1;
};
template <>
struct LayerValues<UpsampleSpec> {
  static Repeated Y(const UpsampleSpec& spec, const Pass&) {
    return {ImageOf(spec.x.shape), ImageOf(spec.y.shape), spec.scale};
  }
  static SumOfCopies Dx(const UpsampleSpec& spec) {
    return {ImageOf(spec.x.shape), ImageOf(spec.y.shape), spec.scale};
  }
};

// What forward and backward of a bilinear upsampling have in common.
struct BilinearGrid {
  ImageShape x, y;
  InterpolatedAxis rows, columns;
};
inline BilinearGrid GridOf(const BilinearSpec& spec) {
  const Shape &x = spec.x.shape, &y = spec.y.shape;
  return {ImageOf(x), ImageOf(y), {x.h, y.h, spec.align_corners}, {x.w, y.w, spec.align_corners}};
}
// The mean of the four pixels around a position. At the last row or column there is no pixel
// beyond, and its weight is 0: the offset to it is 0 as well, so that nothing outside of the image
// is read.
struct BilinearValue : BilinearGrid {
  static constexpr Makes kMakes = Makes::kGathers;
  ADA_VALUE ImageShape runs() const { return y; }
  template <class Input>
  ADA_VALUE auto Run(const RunIndex& at, const Input& from) const {
    const BetweenPixels v = rows.At(at.h), h = columns.At(at.w);
    const std::int64_t top = OffsetOf(x, {at.image, v.at, h.at});
    const std::int64_t down = v.above == 0 ? 0 : x.w * x.c, right = h.above == 0 ? 0 : x.c;
    return [=](int c) ADA_INLINED {
      const std::int64_t i = top + c, below = i + down;
      return Between(v, Between(h, from[i], from[i + right]),
                     Between(h, from[below], from[below + right]));
    };
  }
};
// The sum over the places that a pixel has a part in, row by row.
struct BilinearGradient : BilinearGrid {
  static constexpr Makes kMakes = Makes::kSums;
  ADA_VALUE ImageShape runs() const { return x; }
  template <class Visit>
  ADA_VALUE void ForTerms(const RunIndex& at, Visit&& visit) const {
    // The range of positions is generous; those to which the pixel does not contribute are skipped.
    const auto bottom = static_cast<int>(rows.FirstFrom(at.h + 2));
    const auto left = static_cast<int>(columns.FirstFrom(at.w)),
               right = static_cast<int>(columns.FirstFrom(at.w + 2));
    for (auto h = static_cast<int>(rows.FirstFrom(at.h)); h < bottom; ++h) {
      const float down = rows.Share(at.h, h);
      for (int w = left; w < right; ++w) {
        const float share = down * columns.Share(at.w, w);
        if (share != 0) visit(OffsetOf(y, {at.image, h, w}), share);
      }
    }
  }
};
template <>
struct LayerValues<BilinearSpec> {
  static BilinearValue Y(const BilinearSpec& spec, const Pass&) { return {GridOf(spec)}; }
  static BilinearGradient Dx(const BilinearSpec& spec) { return {GridOf(spec)}; }
};

// Blocks of scale^2 channels of x become blocks of pixels of y.
struct Shuffled {
  static constexpr Makes kMakes = Makes::kMoves;
  ADA_VALUE ImageShape runs() const { return y; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    const int h = at.h / scale, w = at.w / scale;
    const int part = (at.h - h * scale) * scale + (at.w - w * scale);
    return {OffsetOf(x, {at.image, h, w}) + part, 0, y.c, scale * scale};
  }
  ImageShape x, y;
  int scale = 1;
};
// The inverse; a run is what is adjacent in a row of y, `scale` values of a channel of y.
struct Gathered : Shuffled {
  ADA_VALUE ImageShape runs() const { return {x.h, x.w * y.c * scale, scale}; }
  ADA_VALUE MovedRun From(const RunIndex& at) const {
    const int channel_row = at.w / scale, w = channel_row / y.c;
    const int h = at.h * scale + (at.w - channel_row * scale);
    return {OffsetOf(y, {at.image, h, w * scale}) + (channel_row - w * y.c), 0, scale, y.c};
  }
};
template <>
struct LayerValues<PixelShuffleSpec> {
  static Shuffled Y(const PixelShuffleSpec& spec, const Pass&) { return Of(spec); }
  static Gathered Dx(const PixelShuffleSpec& spec) { return {Of(spec)}; }
  static Shuffled Of(const PixelShuffleSpec& spec) {
    return {ImageOf(spec.x.shape), ImageOf(spec.y.shape), spec.scale};
  }
};

}  // namespace ada::backend
