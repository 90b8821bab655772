// Non-maximum suppression: of boxes that overlap the one with the best score stays.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "vision/box.h"

namespace ada::vision {

// Indices by falling score: NaN before all, of equal ones the later first, as in ChainerCV, which
// reverses an ascending order.
std::vector<std::int32_t> ByFallingScore(std::span<const float> scores);
std::vector<std::int32_t> ByFallingScore(std::span<const double> scores);

// Goes through the boxes in `order` and keeps each whose IoU with all kept before is below
// `overlap` (NaN is neither below nor above: it stays), until `limit` are kept (0: all). Returns
// their indices in this order. The overlap is compared in the boxes' type.
std::vector<std::int32_t> Suppress(std::span<const Box> boxes, std::span<const std::int32_t> order,
                                   double overlap, int limit = 0);
std::vector<std::int32_t> Suppress(std::span<const BasicBox<double>> boxes,
                                   std::span<const std::int32_t> order, double overlap,
                                   int limit = 0);

}  // namespace ada::vision
