// Values that are moved as they are stored, run by run (Makes::kMoves).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/rounding/blocks.h"
#include "backend/values/layer_values.h"

namespace ada::backend::cpu {

// Fills the runs of images image .. image + n of `to`, the whole output, from `from`, the whole
// input. A Value is an unsigned number as wide as what is stored, so that NaNs keep their bits.
template <class Value, class Maker>
void MoveRuns(const Maker& maker, const Value* from, std::int64_t image, std::int64_t n,
              Value* to) {
  const ImageShape runs = maker.runs();
  to += image * runs.values();
  for (std::int64_t i = image; i < image + n; ++i)
    for (int h = 0; h < runs.h; ++h)
      for (int w = 0; w < runs.w; ++w, to += runs.c) {
        const MovedRun run = maker.From({i, h, w});
        const Value* x = from + run.from;
        std::fill(to, to + run.begin, Value{});
        std::fill(to + run.end, to + runs.c, Value{});
        if (run.step == 1)
          std::memcpy(to + run.begin, x,
                      static_cast<std::size_t>(run.end - run.begin) * sizeof(Value));
        else
          for (int c = run.begin; c < run.end; ++c, x += run.step) to[c] = *x;
      }
}

// out = the values of `in` that the maker moves; nothing to do if both are one tensor.
template <class Maker>
void MoveTensor(const Context& context, const Pass& pass, const Maker& maker, const Tensor& in,
                const Tensor& out) {
  static_assert(Moves<Maker>());
  if (in.data == out.data) return;
  const auto move = [&]<class Value>(Value*) {
    ForBlocks(context, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                MoveRuns(maker, reinterpret_cast<const Value*>(in.data), image, n,
                         reinterpret_cast<Value*>(out.data));
              });
  };
  BytesOf(out.storage) == 4 ? move(static_cast<std::uint32_t*>(nullptr))
                            : move(static_cast<std::uint16_t*>(nullptr));
}

}  // namespace ada::backend::cpu
