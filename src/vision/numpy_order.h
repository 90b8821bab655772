// The order in which NumPy's argsort leaves equal elements, which recordings of ChainerCV show
// where more than 16 scores are sorted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ada::vision {

// numpy.argsort(scores)[::-1] with NumPy's default, an introsort (Musser 1997) without vector
// instructions, as releases before 1.25 have it. NaN comes first.
std::vector<std::int32_t> NumpyFallingOrder(std::span<const float> scores);

}  // namespace ada::vision
