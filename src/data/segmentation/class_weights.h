// Weights of classes that are rare in the label images of a set.
#pragma once
#include <cstdint>
#include <vector>

#include "data/broken_image.h"
#include "data/dataset.h"

namespace ada::data {

// What becomes of a class that no pixel has.
enum class UnseenClass : std::uint8_t {
  kWeightOne,  // it is left out of the median and weighs 1: no pixel asks for its weight
  kAllNan,     // as recorded from ChainerCV's script: every weight is NaN
};

// Median frequency balancing (Eigen and Fergus 2015, section 6.3.2; Badrinarayanan et al. 2017):
// the frequency of a class is its pixels through all pixels, ignored ones included, of the images
// that have it; its weight the median of all frequencies through its own. Counts the label images
// of the set in their own size, in parallel; `unseen_classes`, where not null, gets the labels of
// classes that no pixel has. An image that cannot be used is a DataError; where `left_out` is not
// null it is left out and put there instead.
std::vector<double> MedianFrequencyWeights(const Dataset& dataset,
                                           UnseenClass unseen = UnseenClass::kWeightOne,
                                           std::vector<int>* unseen_classes = nullptr,
                                           std::vector<BrokenImage>* left_out = nullptr);

// From counts: `pixels` of each class, and `of`, all pixels of the images that have it.
std::vector<double> MedianFrequencyWeights(const std::vector<std::int64_t>& pixels,
                                           const std::vector<std::int64_t>& of, UnseenClass unseen);

}  // namespace ada::data
