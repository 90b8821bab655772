// What attention should have computed (AttentionSpec), in double, of the first backend's operands:
// each value with how far off fp32 sums, and values beside a rounding boundary that they are made
// of, may lead. Worked out for all heads at once, when the first value is asked for.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "backend/compare/address_map.h"
#include "backend/compare/bounds.h"

namespace ada::backend::compare {

class AttentionOperands {
 public:
  AttentionOperands(const AddressMap& addresses, const AttentionSpec& spec);

  // Before a call of both: what is known of the last one is forgotten.
  void Begin(const Pass& pass, double slack);
  // The alphas by which each backend multiplied the gradients of scores.
  void SetAlphas(double first, double second) { alphas_[0] = first, alphas_[1] = second; }

  // Values before their rounding: probabilities of [images, heads, queries, keys]; of y; gradients,
  // before alpha, of scores, queries, keys and values.
  Interval P(std::int64_t i) const;
  Interval Y(std::int64_t i) const;
  Interval Ds(std::int64_t i) const;
  Interval Dq(std::int64_t i) const;
  Interval Dk(std::int64_t i) const;
  Interval Dv(std::int64_t i) const;

  // The tensor of all probabilities; it has no memory.
  Tensor Scores(const NumberFormat& format) const;
  std::int64_t scores(const Pass& pass) const { return pass.rows * heads_ * queries_ * keys_; }

 private:
  using Values = std::vector<float>;
  struct Near {
    double value = 0, error = 0;
    Interval interval() const { return {value - error, value + error}; }
  };
  struct Place {  // of a tensor's value
    std::int64_t image, position, head, channel;
  };
  // A sum of products of a value that is near and one that is known.
  struct NearSum {
    Sum sum;
    double error = 0;
    void Add(const Near& a, double b) {
      sum.Add(a.value * b);
      error += a.error * std::fabs(b);
    }
  };

  Place PlaceOf(std::int64_t i, std::int64_t heads, std::int64_t positions) const;
  std::int64_t ScoreOf(std::int64_t image, std::int64_t head, std::int64_t query,
                       std::int64_t key) const {
    return ((image * heads_ + head) * queries_ + query) * keys_ + key;
  }
  double Q(std::int64_t image, std::int64_t t, std::int64_t head, std::int64_t c) const;
  // A value of keys (part 1) or values (2).
  double K(int part, std::int64_t image, std::int64_t t, std::int64_t head, std::int64_t c) const;
  double Dy(std::int64_t image, std::int64_t t, std::int64_t head, std::int64_t c) const;
  double Kept(std::int64_t score) const;  // what dropout multiplies it by
  Interval Over(const NearSum& sum, double factor) const;

  void TakeProbabilities() const;
  void TakeRow(std::int64_t image, std::int64_t head, std::int64_t query) const;
  void TakeGradients() const;
  void TakeGradientRow(std::int64_t image, std::int64_t head, std::int64_t query) const;
  Near Rounded(const Interval& in, const Rounder& rounder, std::int64_t i) const;
  Rounder RounderOf(bool rounds, const NumberFormat& format, const RoundingStyle& style) const;

  const AddressMap& addresses_;
  const AttentionSpec& spec_;
  std::int64_t heads_, kv_heads_, group_, width_, queries_, keys_;
  double factor_;
  Pass pass_;
  double slack_ = 1, alphas_[2] = {1, 1};
  mutable std::vector<Values> x_;
  mutable Values dy_;
  // By score: as softmax and as multiplied; the gradient before alpha, and as multiplied.
  mutable std::vector<Near> p_, rounded_p_, ds_, rounded_ds_;
};

}  // namespace ada::backend::compare
