// A sheet of the images of a batch as the network sees them, with their labels: for people, who
// look rather than read.
#pragma once
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/loader.h"

namespace ada::data {

inline constexpr int kMostOnSheet = 64;

// The first images of `batch`, at most kMostOnSheet, side by side; small ones enlarged, large ones
// made smaller. Normalization by `mean` and `std` is undone; fp32 values that leave 0..1 all the
// same are spread from the smallest to the largest of the batch. Below each its class's name, or
// its number where `names` has none.
Picture DrawSheet(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec,
                  const std::vector<std::string>& names);

}  // namespace ada::data
