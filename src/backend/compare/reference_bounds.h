// What an op should have computed, worked out on the host for single values, and what was counted
// of it. This is asked only where two backends differ, so it may be slow.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/compare/bounds.h"

namespace ada::backend::compare {

// Values of one tensor before its last rounding.
class ReferenceBounds {
 public:
  virtual ~ReferenceBounds() = default;
  virtual Interval Before(std::int64_t i) const = 0;
};

// Bounds that a function gives.
template <class F>
class FunctionBounds final : public ReferenceBounds {
 public:
  explicit FunctionBounds(F f) : f_(std::move(f)) {}
  Interval Before(std::int64_t i) const override { return f_(i); }

 private:
  F f_;
};

// A tensor that an op wrote, and what it counted while it did. Pointers are the first backend's.
struct Output {
  std::string name;
  Tensor tensor;           // no data: rounded and counted, but not stored
  bool parameter = false;  // all of it is written, not pass.rows images
  NumberFormat format;     // to which values are rounded
  RoundingStyle style;
  TensorStats* stats = nullptr;
  TensorMoments* moments = nullptr;
  bool all_moments = true;
  const float* scale = nullptr;  // S, which histograms leave out
  bool relu = false;             // zero where negative, after rounding
  std::int64_t values(const Pass& pass) const {
    return (parameter ? tensor.shape.n : pass.rows) * tensor.shape.per_image();
  }
};
Output OutputOf(const std::string& name, const Tensor& tensor, const RoundingStyle& style = {},
                TensorStats* stats = nullptr);
Output OutputOf(const std::string& name, const Gradient& gradient);
Output ParameterOf(const std::string& name, const Tensor& tensor);

// How much of what is counted may differ: how many values lie where a count changes within their
// interval, and how wide the intervals are.
struct Budget {
  std::int64_t zeros_before = 0, zeros_after = 0, underflow = 0, below_min = 0, subnormal = 0,
               overflow = 0, above_edge = 0;
  std::int64_t bins = 0;     // values that may lie in either of two binary exponents
  std::int64_t unknown = 0;  // not finite: nothing is known of them
  double sum = 0, sum_square = 0, largest = 0;  // of the widths
};
// Null: every value is exact, nothing may differ. `s`: what histograms leave out.
Budget BudgetOf(const ReferenceBounds* bounds, const Rounder& rounder, std::int64_t values,
                double edge, double s);

}  // namespace ada::backend::compare
