// Layers of positions: position embedding, class token, rope (backend/layer_specs.h).
#pragma once
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "backend/values/moves.h"

namespace ada::backend {

// x plus what its place has, the same in every image.
struct AddedToImage {
  static constexpr Makes kMakes = Makes::kRuns;
  ADA_VALUE ImageShape runs() const { return image; }
  ADA_VALUE auto Run(const RunIndex&, const RandomNumbers&) const {
    return [added = w](int c, float x) ADA_INLINED { return x + added[c]; };
  }
  ImageShape image;
  const float* w = nullptr;
};
template <>
struct LayerValues<PositionEmbeddingSpec> {
  using Spec = PositionEmbeddingSpec;
  static AddedToImage Y(const Spec& spec, const Pass&) {
    return {WholeImage(spec.x.shape), spec.w.f32()};
  }
  static PartOfRuns Dx(const Spec& spec) { return PartOf(spec.y.shape, spec.x.shape, 1, 0); }
  // w may have more positions than y: beyond those of y, dw is 0.
  static std::int64_t ImageSums(const Spec& spec) { return spec.y.shape.per_image(); }
};

// The values of w in front of those of x, image by image.
struct AfterFirst {
  static constexpr Makes kMakes = Makes::kGathers;
  ADA_VALUE ImageShape runs() const { return {1, positions + 1, channels}; }
  template <class Input>
  ADA_VALUE auto Run(const RunIndex& at, const Input& x) const {
    const std::int64_t from = (at.image * positions + at.w - 1) * channels;
    return [=, first = at.w == 0, token = w](int c)
               ADA_INLINED { return first ? token[c] : x[from + c]; };
  }
  int positions = 1, channels = 1;  // of x
  const float* w = nullptr;
};
template <>
struct LayerValues<ClassTokenSpec> {
  using Spec = ClassTokenSpec;
  static AfterFirst Y(const Spec& spec, const Pass&) {
    const Shape& x = spec.x.shape;
    return {static_cast<int>(x.h * x.w), static_cast<int>(x.c), spec.w.f32()};
  }
  static PartOfRuns Dx(const Spec& spec) {
    return PartOf(spec.y.shape, spec.x.shape, 1, spec.y.shape.c);
  }
  static std::int64_t ImageSums(const Spec& spec) { return spec.y.shape.c; }
};

// Pairs of a head's values rotated by the angles of their position, or with sign -1 by the negated
// angles. A run is a whole head of a position if the values of a pair are adjacent (`beside`);
// otherwise a part of one: first values of pairs, second values, or values not rotated.
struct Turned {
  static constexpr Makes kMakes = Makes::kGathers;
  ADA_VALUE ImageShape runs() const { return {positions, heads * (width / run), run}; }
  template <class Input>
  ADA_VALUE auto Run(const RunIndex& at, const Input& x) const {
    const int in_head = at.w % (width / run) * run;
    const bool second = in_head >= half;
    const float* cos = table + std::int64_t{2} * at.h * half + (second ? in_head - half : in_head);
    const std::int64_t from = OffsetOf(runs(), at), other = second ? from - half : from + half;
    return [=, sin = cos + half, turned = 2 * half - in_head, mixed = beside,
            turn = second ? sign : -sign](int c) ADA_INLINED {
      if (!mixed)
        return turned > 0 ? x[from + c] * cos[c] + x[other + c] * (turn * sin[c]) : x[from + c];
      if (c >= turned) return x[from + c];
      const float s = (c % 2 == 0 ? turn : -turn) * sin[c / 2];
      return x[from + c] * cos[c / 2] + x[from + (c ^ 1)] * s;
    };
  }
  int positions = 1, heads = 1, width = 1, half = 0;  // half: pairs of a head
  int run = 1;  // half and width are multiples of it, where not `beside`
  bool beside = false;
  float sign = 1;
  const float* table = nullptr;  // [positions, 2, half]: cosines, sines
};
template <>
struct LayerValues<RopeSpec> {
  static Turned Y(const RopeSpec& spec, const Pass&) { return Of(spec, 1); }
  static Turned Dx(const RopeSpec& spec) { return Of(spec, -1); }
  static Turned Of(const RopeSpec& spec, float sign) {
    const Shape& y = spec.y.shape;
    Turned turned;
    turned.positions = static_cast<int>(y.h * y.w), turned.heads = spec.heads;
    turned.width = static_cast<int>(y.c / spec.heads), turned.half = spec.rotary / 2;
    turned.run = spec.interleaved ? turned.width : std::gcd(turned.half, turned.width);
    turned.beside = spec.interleaved, turned.sign = sign;
    return turned;
  }
  // Angles in double, cosines and sines rounded to fp32 once: backends read the same table.
  static std::vector<float> Table(const RopeSpec& spec) {
    const auto half = static_cast<std::size_t>(spec.rotary / 2);
    const std::int64_t positions = spec.y.shape.h * spec.y.shape.w;
    std::vector<float> table(static_cast<std::size_t>(positions) * 2 * half);
    for (std::size_t i = 0; i < half; ++i) {
      const double turn = std::pow(spec.base, -2.0 * static_cast<double>(i) / spec.rotary);
      for (std::int64_t t = 0; t < positions; ++t) {
        const double angle = static_cast<double>(t) * turn;
        float* of_position = table.data() + static_cast<std::size_t>(t) * 2 * half;
        of_position[i] = static_cast<float>(std::cos(angle));
        of_position[half + i] = static_cast<float>(std::sin(angle));
      }
    }
    return table;
  }
};

}  // namespace ada::backend
