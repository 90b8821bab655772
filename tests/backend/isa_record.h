// What kernels of several instruction sets wrote, compared bit by bit (a NaN is a NaN), and the
// inputs on which they are compared. For isa_*_test.cpp.
#pragma once
#include <functional>

#include "backend/kernel_sets.h"
#include "skip.h"

#define ADA_NEEDS_TWO_SETS() \
  if (KernelSets().size() < 2) ADA_SKIP("this processor has one instruction set only")

namespace ada::backend::test {

// Everything that a kernel wrote, as doubles (which hold each of its types exactly).
struct Record {
  std::vector<double> values;
  void Add(const Values& v) { values.insert(values.end(), v.begin(), v.end()); }
  void Add(const Memory& memory) {
    Add(memory.Get());
    values.push_back(memory.guard_intact());
  }
  void Add(const BlockStats& s) {
    Add(Values{std::bit_cast<float>(s.max_bits), s.rounded_min, s.rounded_max});
    for (const std::int64_t count :
         {static_cast<std::int64_t>(s.min_bits), static_cast<std::int64_t>(s.rounded_min_bits),
          s.values, s.zeros, s.underflow, s.below_min, s.subnormal, s.overflow, s.inf, s.nan,
          s.above_edge})
      values.push_back(static_cast<double>(count));
    values.insert(values.end(), {s.sum, s.sum_square, s.l1, s.rounded_sum, s.rounded_square});
  }
};

using Run = std::function<void(const Kernels&, Record&)>;

// Place of the first difference from the first set; -1: none.
inline std::int64_t Disagreement(const Run& run) {
  std::vector<Record> records;
  for (const Kernels* kernels : KernelSets()) run(*kernels, records.emplace_back());
  for (const Record& r : records) {
    if (r.values.size() != records[0].values.size()) return 0;
    for (std::size_t i = 0; i < r.values.size(); ++i) {
      const double a = r.values[i], b = records[0].values[i];
      if (std::isnan(a) && std::isnan(b)) continue;
      if (std::bit_cast<std::uint64_t>(a) != std::bit_cast<std::uint64_t>(b))
        return static_cast<std::int64_t>(i);
    }
  }
  return -1;
}

// Values for a kernel: ordinary ones, and with `wild` some that are not.
inline Values Input(const Kind& kind, std::size_t n, std::uint64_t seed, bool wild) {
  Values values = Normal(n, 1, seed);
  if (wild) {
    const Values spread = Spread(kind.format, n, seed), bits = RandomBits(n, seed);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = i % 97 == 13 ? bits[i] : i % 3 ? spread[i] : i % 7 ? values[i] : 0;
  }
  return RoundAll(kind.format, values);
}
inline std::int64_t Length(std::size_t n) { return static_cast<std::int64_t>(n); }

// A format with the way it is rounded.
struct Style : Kind {
  bool stochastic = false;
  float scale = 1;
};
// How values are rounded in that style, with every note.
inline cpu::Rounding Rounds(const Style& style, BlockStats* stats, bool moments = true) {
  cpu::Rounding rounding{style.format, true, moments, stats, 0.25};
  rounding.scale = style.scale, rounding.stochastic = style.stochastic;
  rounding.key = 17, rounding.draw = 3, rounding.first = 5;
  return rounding;
}
// The kinds rounded to nearest, some stochastically, some with a per-tensor scale.
inline std::vector<Style> AllStyles() {
  std::vector<Style> styles;
  for (const Kind& kind : AllKinds()) {
    styles.push_back({kind, false, 1});
    styles.push_back({kind, true, 1});
    if (kind.storage != Storage::kF32) continue;
    styles.push_back({kind, false, 0.3f});
    styles.push_back({kind, true, 1024});
  }
  for (Style& style : styles)
    style.name +=
        std::string(style.stochastic ? " stochastic" : "") + (style.scale != 1 ? " scaled" : "");
  return styles;
}

// body(style, n, wild) for the styles, some lengths, tame and wild values.
template <class Body>
void ForFlat(Body&& body) {
  for (const Style& style : AllStyles())
    for (const std::size_t n : {1, 7, 16, 33, 5000})
      for (const bool wild : {false, true}) {
        CAPTURE(style.name);
        CAPTURE(n);
        CAPTURE(wild);
        body(style, n, wild);
      }
}

struct Pixels {
  std::int64_t pixels, channels;
  std::size_t n() const { return static_cast<std::size_t>(pixels * channels); }
};
template <class Body>
void ForPixels(Body&& body) {
  for (const Style& kind : AllStyles())
    for (const Pixels p : {Pixels{3, 5}, {40, 16}, {259, 19}})
      for (const bool wild : {false, true}) {
        CAPTURE(kind.name);
        CAPTURE(p.pixels);
        CAPTURE(p.channels);
        CAPTURE(wild);
        body(kind, p, wild);
      }
}

}  // namespace ada::backend::test
