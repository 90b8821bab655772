// Layers that only move values: shortcut A (subsampling with channel padding), slice, select,
// flatten.
#pragma once
#include <cstdint>
#include <limits>

#include "backend/values/layer_values.h"
#include "error.h"

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

}  // namespace ada::backend
