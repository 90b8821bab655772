// Layers whose values can be computed one by one, each defined once for every backend: LayerValues
// of a spec defines how the values of y and dx are made. A backend has one op for all of them.
//
//   template <>
//   struct LayerValues<SomeSpec> {
//     static SomeMaker Y(const SomeSpec&, const Pass&);  // of x
//     static OtherMaker Dx(const SomeSpec&);             // of dy; of dy and x where it takes two
//     // What may be missing: terms of dy and x, whose sum over all pixels (by channel, or where w
//     // is one value of all) over S is dw;
//     static SomeTerm Dw(const SomeSpec&);
//     // of how many values of an image dw has the sums of dy over images, over S, 0 beyond;
//     static std::int64_t ImageSums(const SomeSpec&);
//     // what makers of y and dx find at `table`.
//     static std::vector<float> Table(const SomeSpec&);
//   };
//
// A maker is a struct of plain data, a functor for the host and a device. kMakes is its kind:
//
//   kEach     value = maker(a), or maker(a, b) with kInputs = 2: of the values at the same place.
//             With kRandom maker(a, number), the place's random number in [0, 1), of `stream`.
//   kRuns     value = maker.Run(at, random)(c, a), or (c, a, b): the same where the place matters
//   kGathers  value = maker.Run(at, x)(c), where x[i] is value i of the input
//   kSums     maker.ForTerms(at, visit) calls visit(i, share): the value is the sum, from 0 on and
//             in that order, of x[i + c] * share
//   kMoves    maker.From(at) says where a run comes from; nothing is rounded
//
// All kinds but the first see the output as runs: maker.runs() describes the runs of an image, each
// of c values, and `at` is the index of a run; what its values share is computed once.
//
// Functions are inlined, because kernels for one instruction set must not leave a shared copy.
#pragma once
#include <cstdint>

#include "backend/backend.h"
#include "backend/specs.h"
#include "number/host_device.h"

namespace ada::backend {

#define ADA_VALUE [[gnu::always_inline]] ADA_HOST_DEVICE
#define ADA_INLINED __attribute__((always_inline))  // of a lambda

enum class Makes : std::uint8_t { kEach, kRuns, kGathers, kSums, kMoves };

template <class Spec>
struct LayerValues;
template <class Spec>
concept HasValues = requires {
  sizeof(LayerValues<Spec>);
};
template <class Spec>
concept HasSum = requires(const Spec& spec) {
  LayerValues<Spec>::Dw(spec);
};
template <class Spec>
concept HasImageSums = requires(const Spec& spec) {
  LayerValues<Spec>::ImageSums(spec);
};
template <class Spec>
concept HasTable = requires(const Spec& spec) {
  LayerValues<Spec>::Table(spec);
};

template <class Maker>
constexpr int InputsOf() {
  if constexpr (requires { Maker::kInputs; }) return Maker::kInputs;
  return 1;
}
template <class Maker>
constexpr bool IsRandom() {
  if constexpr (requires { Maker::kRandom; }) return Maker::kRandom;
  return false;
}
template <class Maker>
constexpr bool Moves() {
  return Maker::kMakes == Makes::kMoves;
}
// Which random numbers a maker takes.
template <class Maker>
std::uint64_t StreamOf(const Maker& maker) {
  if constexpr (requires { maker.stream; }) return maker.stream;
  return 0;
}

// How the runs of an image lie, or its pixels: h rows of w runs of c values.
struct ImageShape {
  int h = 1, w = 1, c = 0;
  ADA_VALUE std::uint32_t values() const { return static_cast<std::uint32_t>(h * w * c); }
};
inline ImageShape ImageOf(const Shape& shape) {
  return {static_cast<int>(shape.h), static_cast<int>(shape.w), static_cast<int>(shape.c)};
}
// Runs, each of which is a whole image.
inline ImageShape WholeImage(const Shape& shape) {
  return {1, 1, static_cast<int>(shape.per_image())};
}
struct RunIndex {
  std::int64_t image;
  int h, w;
};
// The first value of a run.
ADA_VALUE static inline std::int64_t OffsetOf(const ImageShape& shape, const RunIndex& at) {
  return at.image * shape.values() + (std::int64_t{at.h} * shape.w + at.w) * shape.c;
}

// Values begin .. end - 1 of a run are those of the input from `from` on, `step` apart; the others
// are zeros.
struct MovedRun {
  std::int64_t from = 0;
  int begin = 0, end = 0, step = 1;
};

// Random words of a pass; which one image 0 of the call has, in the batch of all processes.
struct RandomNumbers {
  std::uint64_t key = 0, draw = 0;
  std::int64_t first = 0;
};

}  // namespace ada::backend
