// How a run went before it broke: its loss and gradients step by step, and the first logged counts
// of each tensor. What grows before it breaks has steps that are too large.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "telemetry/rows.h"

namespace ada::study {

// The counts of one tensor.
// The first logged step comes before the effects of a run that breaks, so what was lost in it is a
// cause.
struct TensorCourse {
  double first_largest = 0, largest = 0;  // finite |x|, unscaled: of the first logged step, of all
  double first_pct = 0;                   // of its non-zero values that the first logged step lost
  double first_mean = 0, first_std = 0;
};

// advise.cpp adds the rows of steps.csv and underflow.csv in their order; questions may be asked at
// any time. It keeps the last few steps and the first, not the whole run.
class Course {
 public:
  // Rows of steps that overflowed or whose loss is not finite are passed over.
  void Add(const telemetry::StepRow& row);
  void Add(const telemetry::TensorRow& row);

  // Steps whose loss and gradients were finite.
  std::int64_t good_steps() const { return good_steps_; }
  // Whether the loss, or the norm of the gradients, rose far above its first value in the last of
  // these steps.
  bool Rose() const;
  // Whether the loss of all of the last ones is above twice the first one: it is not a single
  // batch.
  bool Diverged() const;
  // "the loss rose from 1.4 to 2.3e+04"; empty where nothing rose.
  std::string Text() const;
  // Null: no row was logged.
  const TensorCourse* Find(const std::string& layer, const std::string& tensor) const;

 private:
  struct Moment {
    double loss, norm;
  };
  Moment Largest() const;

  std::int64_t good_steps_ = 0;
  Moment first_{};
  std::deque<Moment> last_;  // of good steps, the newest at the end
  std::map<std::string, TensorCourse> tensors_;
};

}  // namespace ada::study
