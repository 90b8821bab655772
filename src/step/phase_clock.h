// Where the time of training steps goes.
#pragma once
#include <chrono>
#include <utility>

namespace ada::step {

// Seconds since the last time they were taken, by phase. Where a device works asynchronously, the
// time spent waiting for it counts as backward.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, update = 0, log = 0;
};

// Held by the trainer, which starts it in each step and tells it where one phase ends.
class PhaseClock {
 public:
  void Start() { start_ = Now(); }
  // Adds the time since the last lap, or the start, to a phase.
  void Lap(double PhaseSeconds::*phase) {
    const double now = Now();
    seconds_.*phase += now - std::exchange(start_, now);
  }
  // Returns the seconds so far and begins to count from 0.
  PhaseSeconds Take() { return std::exchange(seconds_, PhaseSeconds{}); }

 private:
  static double Now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  }

  PhaseSeconds seconds_;
  double start_ = 0;
};

}  // namespace ada::step
