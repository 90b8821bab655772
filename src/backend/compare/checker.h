// Compares what two backends wrote in one call of an op, then makes the second's memory the
// first's, so that the next op of both reads the same.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "backend/compare/compare_backend.h"
#include "backend/compare/tolerances.h"
#include "backend/noted.h"
#include "backend/outputs.h"
#include "backend/paired_memory.h"

namespace ada::backend::compare {

// What all ops of one compare backend share.
struct Comparison {
  const CompareOptions options;
  const std::unique_ptr<Backend> first, second;
  PairedMemory memory{*first, *second};
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};

// How far outputs may lie apart, by name (others: not at all), before the op writes over operands.
using SumsByName = std::map<std::string, Sums>;
inline SumsByName SumsOf(const Comparison&, const auto& /*spec*/, const Pass&) { return {}; }
SumsByName SumsOf(const Comparison&, const Conv2dSpec&, const Pass&);
SumsByName SumsOf(const Comparison&, const ConvTranspose2dSpec&, const Pass&);
SumsByName SumsOf(const Comparison&, const LinearSpec&, const Pass&);
SumsByName SumsOf(const Comparison&, const BatchNormSpec&, const Pass&);
SumsByName SumsOf(const Comparison&, const AttentionSpec&, const Pass&);
SumsByName SumsOf(const Comparison&, const ClassLossSpec&, const Pass&);

class Checker {
 public:
  Checker(Comparison& all, const std::string& layer, const char* op, const char* phase)
      : all_(all), about_{++all.calls, layer, op, phase, {}, {}, 0, 0, {}} {}

  // Decisions and scales, which values rest on, then all else.
  void Check(const Outputs& outputs, const Pass& pass, SumsByName sums = {});
  // `names`: "x,y,z". Number i may lie allowed[i % size] + relative * |a[i]| apart.
  void Compare(const char* names, const Numbers& a, const Numbers& b, const Numbers& allowed = {0},
               double relative = 0);

 private:
  struct Seen;  // an output's values
  void CheckDecision(const Output& out, double bound);
  void CheckValues(const Seen& seen);
  void CheckStats(const Seen& seen, const TensorStats& a, const TensorStats& b);
  void CheckMoments(const Seen& seen, const TensorMoments& a, const TensorMoments& b);
  void CheckNotes(const Seen& seen, const Pass& pass);
  void CompareBins(const char* name, const Numbers& a, const Numbers& b, double allowed);
  // check(a, b) of what lies at a place, which becomes the first's.
  template <class T, class F>
  void Both(T* place, const F& check) {
    if (place == nullptr) return;
    check(all_.memory.Read(0, place), all_.memory.Read(1, place));
    all_.memory.Copy(place);
  }
  void Tell(const std::string& what, double first, double second, const std::string& allowed);

  Comparison& all_;
  Difference about_;
  bool told_ = false;
};

}  // namespace ada::backend::compare
