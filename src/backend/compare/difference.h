// What two backends disagree about: the first thing of an op's call that lies beyond the bound.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace ada::backend::compare {

struct Difference {
  std::int64_t call = 0;  // number of the op's call since the backend was made, from 1
  std::string layer, op;  // "stage1.conv1", "conv2d"
  std::string phase;      // forward, backward, refresh weights, result, update
  std::string tensor;     // y dx dw ...; empty: none
  std::string what;       // "value [n 3, h 0, w 5, c 2]", "underflow", "alpha"
  double first = 0, second = 0;
  std::string allowed;  // "exactly equal", "0.124 to 0.126"
};

// "call 17, layer stage1.conv1 (conv2d), backward, dx, value [n 3, h 0, w 5, c 2]: cpu 0.125, cuda
// 0.25 (allowed: 0.124 to 0.126)".
std::string ToString(const Difference& difference, const std::string& first_name,
                     const std::string& second_name);

}  // namespace ada::backend::compare
