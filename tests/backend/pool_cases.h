// Windows and images that pooling is tested with, on every backend.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ada::backend::test {

struct PoolCase {
  std::string name;
  Shape x;
  std::array<int, 2> kernel, stride, padding = {0, 0};
  Shape y() const {
    return {x.n, (x.h + 2 * padding[0] - kernel[0]) / stride[0] + 1,
            (x.w + 2 * padding[1] - kernel[1]) / stride[1] + 1, x.c};
  }
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
          {"blocks of an image", {5, 32, 32, 16}, {2, 2}, {2, 2}}};
}

}  // namespace ada::backend::test
