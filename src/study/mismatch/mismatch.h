// The parts of `mismatch`: predictions of two sides, from files or from a network; figures of each
// position, their means, and how sure these are; and what is said of them.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "run/mismatch/mismatch.h"
#include "study/commands.h"
#include "telemetry/columns.h"

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

// Positions of all samples, a beside b, and of each side beside its twin where there are twins.
struct MismatchPositions {
  std::vector<MismatchPosition> apart;
  std::vector<std::vector<MismatchPosition>> twins;
  bool has_agreement = true;   // not of tokens alone
  bool has_positions = false;  // samples have several
  std::int64_t samples = 0;
  std::string differences_of;  // "the target", in words
};
// Reads both files, and the twin of the first where it is named. Throws DataError where they have
// no tensor that is known, or not the same shapes.
MismatchPositions ReadPredictions(const MismatchOptions& options);

// One row of mismatch.csv: of all positions, of one position of the samples, or of a layer.
struct MismatchRow {
  std::string scope, name, figure;
  double value = NAN, error = NAN, floor = NAN;

  static constexpr auto Columns() {
    return std::to_array<telemetry::Column<MismatchRow>>({{"scope", &MismatchRow::scope},
                                                          {"name", &MismatchRow::name},
                                                          {"figure", &MismatchRow::figure},
                                                          {"value", &MismatchRow::value},
                                                          {"error", &MismatchRow::error},
                                                          {"floor", &MismatchRow::floor}});
  }
};
struct MismatchResult {
  std::vector<std::string> sides;  // two names
  std::vector<MismatchRow> rows;
  std::vector<run::LayerMismatch> layers;  // of a network
  std::int64_t samples = 0, positions = 0;
  std::string differences_of;
  std::string sentence;
};
MismatchResult ResultOf(const MismatchPositions& positions,
                        const std::vector<run::LayerMismatch>& layers,
                        const std::vector<std::string>& sides);
void PrintMismatch(const MismatchResult& result, View view, std::ostream& out);
// An SVG picture: what each layer adds and inherits; without layers the divergence by position.
std::string MismatchPicture(const MismatchResult& result);

}  // namespace ada::study
