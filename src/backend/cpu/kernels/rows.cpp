// Rows of tensors on their way to matrices in fp32 and back: a head's part of all channels, or the
// channels of one branch among those of all.
#include <algorithm>

#include "backend/cpu/kernels/flat.h"
#include "backend/cpu/kernels/modes.h"
#include "backend/cpu/sequence_kernels.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// body(place in a row, lanes, tail) for a row's vectors, the last of them perhaps partial.
template <class Body>
ADA_INLINE void ForVectors(std::int64_t width, Body&& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) body(i, kLanes, std::false_type{});
  if (i < width) body(i, static_cast<int>(width - i), std::true_type{});
}

}  // namespace

void LoadRows(TensorSpan from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
              float* to, std::int64_t to_step) {
  Dispatch({from}, [&](auto mode) {
    using Mode = decltype(mode);
    const std::int64_t whole = std::min((width + kLanes - 1) / kLanes * kLanes, to_step);
    for (std::int64_t r = 0; r < rows; ++r, to += to_step) {
      // What is loaded of a partial vector has zeros after its values.
      ForVectors(
          width, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
            StoreF(to + i, LoadAt<Mode, decltype(tail)::value>(from, r * from_step + i, lanes));
          });
      std::fill(to + whole, to + to_step, 0.0f);
    }
  });
}

void StoreRows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
               float factor, float* to, std::int64_t to_step) {
  const F f = Fill(factor);
  for (std::int64_t r = 0; r < rows; ++r, from += from_step, to += to_step) {
    const TensorSpan row{const_cast<float*>(from), Storage::kF32}, out{to, Storage::kF32};
    ForVectors(
        width, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          StoreAt<ModeF32, kTail>(out, i, lanes, LoadAt<ModeF32, kTail>(row, i, lanes) * f);
        });
  }
}

void AddRows(TensorSpan from, std::int64_t rows, std::int64_t width, float factor, float* to,
             std::int64_t to_step) {
  const F f = Fill(factor);
  Dispatch({from}, [&](auto mode) {
    using Mode = decltype(mode);
    for (std::int64_t r = 0; r < rows; ++r, to += to_step) {
      const TensorSpan out{to, Storage::kF32};
      ForVectors(
          width, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
            constexpr bool kTail = decltype(tail)::value;
            const F x = LoadAt<Mode, kTail>(from, r * width + i, lanes) * f;
            StoreAt<ModeF32, kTail>(out, i, lanes, LoadAt<ModeF32, kTail>(out, i, lanes) + x);
          });
    }
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
