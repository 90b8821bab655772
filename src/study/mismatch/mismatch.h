// The parts of `mismatch`: predictions of two sides, from files or from a network, and what is said
// of them.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "run/mismatch/mismatch.h"
#include "study/commands.h"
#include "study/mismatch/figures.h"

namespace ada::study {

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
