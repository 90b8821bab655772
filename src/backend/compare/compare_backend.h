// A backend that is two: every op runs on both, on the same inputs, and the first op whose results
// lie further apart than the order of fp32 sums can explain (bounds.h) is named, with its layer,
// tensor and values. The run goes on with the first backend's results, so differences do not pile
// up, and its numbers are the first's. For people who doubt a backend: slow, and nothing is fused
// over two layers (recomputed batch norms are declined, which changes no bit).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/compare/difference.h"

namespace ada::backend {

struct CompareOptions {
  std::string first_name = "first", second_name = "second";  // "cpu", "cuda"
  // How much more than sums that round to nearest a side's may be off (bounds.h): for units that
  // truncate.
  double slack = 1;
  // Told of the first difference of each call of an op; empty: the first one throws a DeviceError
  // that says it.
  std::function<void(const compare::Difference&)> report;
  // A side adds up products of fp8_e4m3 and fp8_e5m2 in units for 8 bits (bounds.h).
  bool fp8_sums = false;
};

// Throws DeviceError where the two cut tensors into different reduction blocks.
std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options = {});

}  // namespace ada::backend
