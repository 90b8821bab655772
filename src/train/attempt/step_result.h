// What one attempt did, as the rest of a run goes by it.
#pragma once
#include <cstdint>
#include <string>

namespace ada::train {

// The first rounding, in the order of execution, whose largest magnitude is or becomes infinite.
struct NotFiniteTensor {
  std::string layer, tensor;  // layer empty: there is none
  float largest = 0;
  int rank = -1;         // the process whose part of the tensor has it; -1: all have the same
  bool outgrew = false;  // as telemetry::FirstNotFinite has it
};

// Filled by the trainer during Step and returned to the session; the logs get the same through
// Attempt. In a run of several processes it describes the whole batch.
struct StepResult {
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = 0, accuracy = 0, lr = 0, scale = 1, grad_norm = 0;
  double location_loss = 0;  // detection: the part of `loss` that is of locations
  int images = 0;            // of all processes
  std::int64_t terms = 0;    // over which the loss is a mean
  bool overflow = false, skipped = false;
  bool retried = false;    // skipped, and the next attempt is the same update again
  bool sanitized = false;  // not finite, and updated with cleaned gradients all the same
  bool logged = false;
  bool rate_moves = false;     // lr may differ from the last step's without a milestone between
  NotFiniteTensor not_finite;  // looked for where a weight gradient or the loss is not finite
  std::string error;           // not empty: the policy ends the run, and why
};

}  // namespace ada::train
