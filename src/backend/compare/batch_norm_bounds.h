// Batch norm in double from its definition, value by value.
#pragma once
#include <vector>

#include "backend/compare/address_map.h"
#include "backend/compare/reference_bounds.h"

namespace ada::backend::compare {

// One call's operands, as the first backend had them before it.
class BatchNormOperands {
 public:
  BatchNormOperands(const AddressMap& addresses, const BatchNormSpec& spec)
      : addresses_(addresses), spec_(spec) {}

  // Before the call: keeps what the op may write over.
  void Begin(const Pass& pass, bool backward);
  // After it, once: everything else. `slack`: of the bounds.
  void Finish(double slack);

  Interval Y(std::int64_t i) const;  // before its rounding
  Interval Dx(std::int64_t i) const;
  Interval Dgamma(std::int64_t c) const;
  Interval Dbeta(std::int64_t c) const;
  Interval RunningMean(std::int64_t c) const;
  Interval RunningVar(std::int64_t c) const;
  float addend(std::int64_t i) const { return addend_[static_cast<std::size_t>(i)]; }

 private:
  using Values = std::vector<float>;
  struct Channel {
    double mean = 0, inverse = 0, gamma = 0, beta = 0, variance = 0;
    double mean_abs = 0;  // of x: magnitudes that errors are relative to
    double sum_dy = 0, sum_dy_xhat = 0, sum_abs_dy = 0, sum_abs_dy_xhat = 0;
  };
  const Channel& At(std::int64_t i) const {
    return channels_[static_cast<std::size_t>(i) % channels_.size()];
  }
  double X(std::int64_t i) const { return static_cast<double>(x_[static_cast<std::size_t>(i)]); }
  double Xhat(std::int64_t i) const { return (X(i) - At(i).mean) * At(i).inverse; }
  double AbsXhat(std::int64_t i) const {
    return (std::fabs(X(i)) + std::fabs(At(i).mean)) * At(i).inverse;
  }
  double pixels() const;
  void TakeStatistics();
  void MaskGradient();
  void SumGradients();
  Interval Unscaled(double sum, double magnitude, const Values& before, std::int64_t c) const;

  const AddressMap& addresses_;
  const BatchNormSpec& spec_;
  Pass pass_;
  bool backward_ = false;
  double slack_ = 1, scale_ = 1;
  Values x_, dy_, addend_, running_mean_, running_var_, dgamma_, dbeta_;
  std::vector<Channel> channels_;
};

}  // namespace ada::backend::compare
