// The shape of schedule one_cycle: Smith and Topin (2018) as torch's OneCycleLR has it.
#pragma once
#include "optim/schedule.h"

namespace ada::optim {

// The rate of step `step` (from 0; any number) of a cycle of `length` steps, at most `lr`.
double OneCycleRate(const Schedule::OneCycle& shape, double lr, double step, double length);

}  // namespace ada::optim
