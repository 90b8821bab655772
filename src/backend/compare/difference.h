// A difference between two backends, and what is done with it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace ada::backend {
namespace compare {

// The first difference in an op's call that exceeds the tolerance.
struct Difference {
  std::int64_t call = 0;  // number of the op's call since the backend was made, from 1
  std::string layer, op;  // "stage1.conv1", "conv2d"
  std::string phase;      // forward, backward, refresh weights, result, update
  std::string tensor;     // y dx dw ...; empty: none
  std::string what;       // "value [n 3, h 0, w 5, c 2]", "underflow", "alpha"
  double first = 0, second = 0;
  std::string allowed;  // "exactly equal", "0.001 apart"
};
// "call 17, layer conv1 (conv2d), backward, dx, underflow: cpu 3, cuda 0 (allowed: exactly equal)".
std::string ToString(const Difference& difference, const std::string& first_name,
                     const std::string& second_name);

}  // namespace compare

struct CompareOptions {
  std::string first_name = "first", second_name = "second";  // "cpu", "cuda"
  // Factor for the error of one side's sums, for hardware that truncates instead of rounding.
  double slack = 1;
  // Called with the first difference of each call of an op; empty: a DeviceError is thrown.
  std::function<void(const compare::Difference&)> report;
  bool fp8_sums = false;  // one side multiplies fp8_e4m3 and fp8_e5m2 with tensor cores for 8 bits
};

}  // namespace ada::backend
