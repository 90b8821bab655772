// The data set `tensors`: train.images, train.labels, test.images and test.labels of one file.
#pragma once
#include <string>

#include "data/dataset.h"

namespace ada::data {

// Reads the labels; images stay in the file, or packed, until they are asked for. Throws DataError
// naming file and tensor: missing, of a wrong type or shape, labels below 0 or out of range. Images
// whose channels stand first are put into memory with their channels last, as all others are.
Splits OpenTensors(const std::string& path, ArrayLayout layout = ArrayLayout::kAuto);

}  // namespace ada::data
