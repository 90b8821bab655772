// Classes that no label image of a set has, found before anything is trained on it.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

struct UnseenClasses {
  std::vector<int> classes;
  std::int64_t looked = 0;   // label images, evenly spread; all of a set that has no more
  double ignored_share = 0;  // of their pixels, 0 to 1
};

// Reads label images until every class was seen, at most 1,000. What cannot be read counts nothing.
UnseenClasses FindUnseenClasses(const Dataset& dataset);

}  // namespace ada::data
