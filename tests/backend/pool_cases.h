// Windows and images that pooling is tested with, on every backend.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "number/tensor.h"

namespace ada::backend::test {

struct PoolCase {
  std::string name;
  Shape x;
  std::array<int, 2> kernel, stride, padding = {0, 0};
  bool ceil = false;          // windows begin wherever a pixel or the padding before them is left
  bool count_padding = true;  // of means
  std::int64_t Windows(int side) const {
    const auto at = static_cast<std::size_t>(side);
    const std::int64_t size = side == 0 ? x.h : x.w;
    std::int64_t windows = 0;  // counted one by one
    for (std::int64_t begin = -padding[at];; begin += stride[at]) {
      const bool fits = begin + kernel[at] <= size + padding[at];
      if (!fits && !(ceil && begin < size && begin - stride[at] + kernel[at] < size + padding[at]))
        return windows;
      ++windows;
    }
  }
  Shape y() const { return {x.n, Windows(0), Windows(1), x.c}; }
  bool overlaps() const { return kernel[0] > stride[0] || kernel[1] > stride[1]; }
};
inline std::vector<PoolCase> PoolCases() {
  return {{"2x2", {5, 6, 8, 16}, {2, 2}, {2, 2}},
          {"2x2, a rest", {3, 7, 5, 3}, {2, 2}, {2, 2}},
          {"3x3, stride 2", {5, 9, 9, 17}, {3, 3}, {2, 2}, {1, 1}},
          {"3x3, stride 1", {4, 6, 6, 10}, {3, 3}, {1, 1}, {1, 1}},
          {"gaps between windows", {3, 8, 8, 5}, {2, 2}, {3, 3}},
          {"3x2, stride 1x2", {3, 7, 8, 33}, {3, 2}, {1, 2}, {1, 0}},
          {"one pixel", {4, 3, 3, 1}, {1, 1}, {1, 1}},
          {"global", {6, 8, 8, 64}, {8, 8}, {8, 8}},
          {"17x17", {2, 18, 18, 3}, {17, 17}, {1, 1}},
          {"blocks of an image", {5, 32, 32, 16}, {2, 2}, {2, 2}},
          {"a rest is a window", {3, 7, 5, 3}, {2, 2}, {2, 2}, {0, 0}, true},
          {"3x3, stride 2, a rest", {4, 8, 10, 17}, {3, 3}, {2, 2}, {0, 0}, true, false},
          {"padded, a rest", {4, 8, 7, 5}, {3, 3}, {2, 2}, {1, 1}, true},
          {"padded, not counted", {4, 8, 7, 16}, {3, 4}, {2, 3}, {1, 2}, true, false},
          {"gaps, a rest", {3, 8, 7, 5}, {2, 2}, {3, 3}, {1, 1}, true}};
}

}  // namespace ada::backend::test
