// Compares what two backends wrote in one call of an op, then makes the second's memory the
// first's, so that the next op of both reads the same.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "backend/compare/address_map.h"
#include "backend/compare/compare_backend.h"
#include "backend/compare/reference_bounds.h"

namespace ada::backend::compare {

// One call: who, and what is said of the first thing that differs.
class Checker {
 public:
  using Report = std::function<void(const Difference&)>;
  // `about` names call, layer, op and phase. `report` is told at most once a call.
  Checker(AddressMap& addresses, Difference about, double slack, Report report)
      : addresses_(addresses),
        about_(std::move(about)),
        slack_(slack),
        report_(std::move(report)) {}

  AddressMap& addresses() const { return addresses_; }
  double slack() const { return slack_; }
  // Relative, of the stages of decisions and the scales that come of them.
  void set_decision_bound(double bound) { decision_bound_ = bound; }

  // Values, statistics, moments and histogram of a tensor. `bounds` null: all values are exact.
  void Check(const Output& out, const Pass& pass, const ReferenceBounds* bounds = nullptr);
  // A scale, exact or as near as decisions that rest on moments can be.
  void CheckScale(const std::string& name, const float* scale);
  // `dgrad`: of the `values` values before alpha, which exact_range counts; null: exact.
  void CheckScaler(const scaling::LayerScaler* scaler, const ReferenceBounds* dgrad,
                   std::int64_t values);
  void CheckDecision(const scaling::ScaleDecision* decision);
  // Numbers that are no tensor's.
  void CheckNumber(const std::string& what, double first, double second, double bound);
  // Values of a parameter before and after: each side within `bound(i)` of the other.
  void CheckNear(const std::string& name, const Tensor& tensor,
                 const std::function<double(std::size_t)>& bound);

 private:
  class Lazy;
  void CheckValues(const Output& out, const Pass& pass, const Rounder& rounder,
                   const ReferenceBounds* bounds);
  void CheckStats(const Output& out, Lazy& lazy);
  void CheckLargest(const NumberFormat& format, float a, float b, Lazy& lazy);
  void CheckCounts(const TensorStats& a, const TensorStats& b, Lazy& lazy);
  void CheckMoments(const Output& out, const Pass& pass);
  void CheckBins(const Output& out, Lazy& lazy);
  void CheckStages(const scaling::ScaleDecision& a, const scaling::ScaleDecision& b);
  void CheckCount(const std::string& what, std::int64_t first, std::int64_t second,
                  const std::function<std::int64_t()>& allowed);
  void CheckTail(const scaling::ExponentTail& a, const scaling::ExponentTail& b,
                 const ReferenceBounds* dgrad, std::int64_t values);
  void Tell(const std::string& what, double first, double second, const std::string& allowed);

  AddressMap& addresses_;
  Difference about_;
  double slack_, decision_bound_ = kDecision;
  Report report_;
  bool told_ = false;
  std::string tensor_;
};

}  // namespace ada::backend::compare
