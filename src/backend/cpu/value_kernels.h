// Kernels of layers that are defined once (backend/values/layer_values.h): what a maker makes of
// blocks in fp32, compiled once per instruction set.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/values/all.h"

namespace ada::backend::cpu {

// Whole images of the output.
struct FillArgs {
  std::int64_t image = 0, images = 1;  // the first one's number; how many
  std::int64_t values = 0;             // of all of them
  float* out = nullptr;                // of kEach and kRuns the first input's values lie here
  const float* second = nullptr;       // the second input's
  const float* input = nullptr;        // of the other kinds: of the same images
  std::int64_t input_values = 0;       // of an image of it
  RandomNumbers random;  // of kEach by value, the first one's number; of kRuns by image
};
template <class Maker>
using FillKernel = void (*)(const Maker&, const FillArgs&);

// Where nothing is made.
struct NoMaker {
  static constexpr Makes kMakes = Makes::kMoves;
};
template <class Spec>
constexpr auto MakerOfDwOrNone() {
  if constexpr (HasSum<Spec>)
    return decltype(LayerValues<Spec>::Dw(std::declval<const Spec&>())){};
  else
    return NoMaker{};
}
// Null where values are only moved.
template <class Spec>
struct FillKernels {
  FillKernel<MakerOfY<Spec>> y;
  FillKernel<MakerOfDx<Spec>> dx;
  FillKernel<decltype(MakerOfDwOrNone<Spec>())> dw;
};
using ValueKernels = ForValueLayers<FillKernels>;

namespace generic {
extern const ValueKernels kValueTable;
}
namespace sse2 {
extern const ValueKernels kValueTable;
}
namespace avx2 {
extern const ValueKernels kValueTable;
}
namespace avx512 {
extern const ValueKernels kValueTable;
}

// Those of the same instruction set.
const ValueKernels& ValueKernelsOf(const Kernels& kernels);

}  // namespace ada::backend::cpu
