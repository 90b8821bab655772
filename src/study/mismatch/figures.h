// How far two sets of predictions lie apart: figures of each position, their means, and how sure
// these are.
// Used by mismatch.cpp: Positions are made by Compare or CompareTokens, then Summarize is called
// for all of them and for parts.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ada::study {

// What is known of one position: a token of a sequence, or an image.
struct MismatchPosition {
  std::int64_t sample = 0, position = 0;
  double divergence = 0;  // KL(a || b), in nats
  double difference = 0;  // log b - log a of the target, or of the likeliest of a; NaN: no target
  bool agrees = true;     // on the likeliest
};
// Logits, or log-probabilities of all classes: both are normalized in double. target: below 0:
// none, then of the likeliest of a where `take_likeliest`.
MismatchPosition Compare(std::span<const float> a, std::span<const float> b, std::int64_t target,
                         bool take_likeliest);
// Log-probabilities of one token that a has drawn: of r = exp(difference) the divergence is r - 1 -
// log r, whose mean is KL(a || b) without bias (Schulman, Approximating KL Divergence).
MismatchPosition CompareTokens(double a, double b);

// A figure with its standard error: for means over positions that of the ratio of sums by sample,
// for percentiles that of 200 resamplings of the samples. The error of one sample is NaN.
struct MismatchFigure {
  std::string name;
  double value = NAN, error = NAN, floor = NAN;
};
// Gives kl_mean, kl_p99 (the smallest value that 99 % do not exceed), kl_max, difference_mean,
// difference_abs_mean, difference_abs_p99, and where likeliest classes are known agreement, a
// share.
std::vector<MismatchFigure> Summarize(const std::vector<MismatchPosition>& positions,
                                      bool has_agreement);

}  // namespace ada::study
