// A backend that is two: every op runs on both, on the same inputs, and the first one whose results
// lie further apart than tolerances.h says is named. The run goes on with the first's results. It
// is slow, and nothing is fused over two layers (recomputed batch norms are declined).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace ada::backend {
namespace compare {

// What two backends disagree about: the first thing of an op's call that lies too far apart.
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
  // How much more than sums that round to nearest a side's may be off: for units that truncate.
  double slack = 1;
  // Told of the first difference of each call of an op; empty: a DeviceError says it.
  std::function<void(const compare::Difference&)> report;
  bool fp8_sums = false;  // a side adds up products of fp8_e4m3 and fp8_e5m2 in units for 8 bits
};

// Throws DeviceError where the two cut tensors into different reduction blocks.
std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options = {});

}  // namespace ada::backend
