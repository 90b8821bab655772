// Sequences of the data set `tensors`: arrays of whole numbers [n, tokens].
#pragma once
#include <string>

#include "data/dataset.h"

namespace ada::data {

// train.tokens and train.targets (where they are missing: of each token the next one, and none of
// the last), and of split test the same, which need not be there. Tokens are of any integer type;
// targets are kIgnoredTarget where there is none. The vocabulary is `choices.vocabulary`, or the
// largest number and one. DataError naming file, tensor and place.
Splits OpenTokenTensors(const std::string& path, const FileChoices& choices);

}  // namespace ada::data
