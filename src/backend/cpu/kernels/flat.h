// The loop over a block seen as one run of values: whole vectors, sums emptied every 4096 values,
// and one partial vector at the end.
#pragma once
#include <algorithm>

#include "backend/cpu/kernels/counter.h"

namespace ada::backend::cpu::ADA_ISA {

// body(i, lanes, tail, loop): handles values i .. i + lanes; tail is std::true_type for the partial
// vector; loop is what the counter `stats` began.
template <class Stats, class Body>
ADA_INLINE void ForValues(std::int64_t n, Stats& stats, Body&& body) {
  // fp32 sums stay short, and a loop never keeps more than the counter's buffer holds
  // (CountBuffer::kLoop).
  constexpr std::int64_t kSegment = 256 * kLanes;
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t begin = 0; begin < whole; begin += kSegment) {
    const std::int64_t end = std::min(begin + kSegment, whole);
    auto loop = stats.Begin();
    for (std::int64_t i = begin; i < end; i += kLanes) body(i, kLanes, std::false_type{}, loop);
    stats.End(loop);
  }
  if (whole < n) {
    auto loop = stats.Begin();
    body(whole, static_cast<int>(n - whole), std::true_type{}, loop);
    stats.End(loop);
  }
}
// body(i, lanes, tail) where nothing is measured.
template <class Body>
ADA_INLINE void ForValues(std::int64_t n, Body&& body) {
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) body(i, kLanes, std::false_type{});
  if (whole < n) body(whole, static_cast<int>(n - whole), std::true_type{});
}

// Sixteen values from i on, or (kTail) the first `lanes` of them and zeros after: nothing beyond
// the span's end is touched.
template <class Mode, bool kTail>
ADA_INLINE F LoadAt(const TensorSpan& p, std::int64_t i, int lanes) {
  if constexpr (kTail)
    return Mode::LoadFirst(p, i, lanes);
  else
    return Mode::Load(p, i);
}
template <class Mode, bool kTail>
ADA_INLINE void StoreAt(const TensorSpan& p, std::int64_t i, int lanes, F v) {
  if constexpr (kTail)
    Mode::StoreFirst(p, i, lanes, v);
  else
    Mode::Store(p, i, v);
}

// out = round(value(i)) with its statistics; value(i, lanes, tail) gives the fp32 values. It should
// hold copies of what it needs: a copy of it that nothing points to stays in registers.
// The common shape of kernels of values one by one: it chooses what is measured, walks over the
// block and writes the statistics.
template <class Mode, class Value>
ADA_INLINE void RoundValues(const TensorSpan& out_span, std::int64_t n, const Rounding& rounding,
                            const Value& value_at) {
  DispatchStats<Mode>(rounding, [&](auto count, auto moments) {
    Counter<Mode, count(), moments()> counter(rounding);
    const TensorSpan out = out_span;
    const Value value = value_at;
    ForValues(
        n, counter,
        [&](std::int64_t i, int lanes, auto tail, auto& loop) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          loop.template RoundInto<kTail>(out, i, lanes, value(i, lanes, tail));
        });
    counter.Finish(n);
  });
}

}  // namespace ada::backend::cpu::ADA_ISA
