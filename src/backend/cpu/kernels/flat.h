// The loop over a block seen as one run of values: whole vectors, sums emptied every 4096 values,
// and one partial vector at the end.
#pragma once
#include <algorithm>

#include "backend/cpu/kernels/counter.h"

namespace ada::backend::cpu::ADA_ISA {

// body(i, lanes, tail): handles values i .. i + lanes; tail is std::true_type for the partial
// vector.
template <class Body, class Flush>
ADA_INLINE void ForValues(std::int64_t n, Body&& body, Flush&& flush) {
  constexpr std::int64_t kSegment = 4096;
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t begin = 0; begin < whole; begin += kSegment) {
    const std::int64_t end = std::min(begin + kSegment, whole);
    for (std::int64_t i = begin; i < end; i += kLanes) body(i, kLanes, std::false_type{});
    flush();
  }
  if (whole < n) {
    body(whole, static_cast<int>(n - whole), std::true_type{});
    flush();
  }
}

template <class Mode, bool kTail>
ADA_INLINE F LoadAt(const Piece& p, std::int64_t i, int lanes) {
  if constexpr (kTail)
    return Mode::LoadFirst(p, i, lanes);
  else
    return Mode::Load(p, i);
}
template <class Mode, bool kTail>
ADA_INLINE void StoreAt(const Piece& p, std::int64_t i, int lanes, F v) {
  if constexpr (kTail)
    Mode::StoreFirst(p, i, lanes, v);
  else
    Mode::Store(p, i, v);
}

// out = round(value(i)) with its notes; value(mode, i, lanes, tail) gives the fp32 values.
template <class Mode, class Value>
ADA_INLINE void RoundValues(const Piece& out, std::int64_t n, const Rounding& rounding,
                            Value&& value) {
  DispatchNotes<Mode>(rounding, [&](auto count, auto moments) {
    Counter<Mode, count(), moments()> counter(rounding);
    ForValues(
        n,
        [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          const F x = value(i, lanes, tail);
          const F r = Mode::Round(x, counter.grid());
          counter.template Add<kTail>(x, r, FirstLanes(lanes));
          StoreAt<Mode, kTail>(out, i, lanes, r);
        },
        [&] { counter.Flush(); });
    counter.Finish(n);
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
