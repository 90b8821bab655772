// What a library's plan notes of the values that it rounds itself, and the statistics that become
// of it.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/number.h"
#include "core/host_device.h"
#include "core/stats.h"

namespace ada::backend::cuda {

// Of fp32 values before they are rounded. Both are 0 when a plan begins: it may add to what is
// there. Libraries do not say what their largest magnitude is where a value is NaN, so those are
// counted.
struct PlanNotes {
  float largest;  // |value|, inf included; anything where one is NaN
  float nans;     // how many values are NaN: not 0 where one is
};

// The TensorStats of `values` values of which only these are wanted, as NoteLevel::kLargest leaves
// them; the notes are made ready for the next plan.
struct StorePlanNotes {
  PlanNotes* notes;
  std::int64_t values;
  TensorStats* stats;
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    TensorStats all;
    all.numel = values;
    all.max_abs = notes->nans == 0 ? notes->largest : OfBits(0x7fc00000u);
    *stats = all;
    *notes = {};
  }
};

}  // namespace ada::backend::cuda
