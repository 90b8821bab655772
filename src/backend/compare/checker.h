// Compares what two backends wrote in one call of an op, then overwrites the second's memory with
// the first's, so that the next op reads the same on both.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/compare/difference.h"
#include "backend/compare/tolerances.h"
#include "backend/noted.h"
#include "backend/outputs.h"
#include "backend/paired_memory.h"

namespace ada::backend::compare {

// State shared by all ops of one compare backend.
struct Comparison {
  const CompareOptions options;
  const std::unique_ptr<Backend> first, second;
  PairedMemory memory{*first, *second};
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};

// Tolerances of outputs by name (others must be equal), taken before the op overwrites operands.
using SumTolerances = std::map<std::string, SumTolerance>;
SumTolerances TolerancesOf(const Comparison&, const MatmulSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const BatchNormSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const AttentionSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const ClassLossSpec&, const Pass&);

class Checker {
 public:
  Checker(Comparison& all, const std::string& layer, const char* op, const char* phase)
      : all_(all), about_{++all.calls, layer, op, phase, {}, {}, 0, 0, {}} {}

  // Checks decisions and scales first, because values depend on them, then all else.
  void Check(const Outputs& outputs, const Pass& pass, SumTolerances sums = {});
  // `names`: "x,y,z". Number i may differ by allowed[i % size] + relative * |a[i]|.
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
  // Calls check(a, b) with the values at a place, then overwrites the second with the first.
  void Both(auto* place, const auto& check) {
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
