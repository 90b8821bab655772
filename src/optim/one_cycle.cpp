#include "optim/one_cycle.h"

#include <array>
#include <cmath>

namespace ada::optim {
namespace {

struct Phase {
  double end, from, to;  // its last step and the rates at its ends
};

double Between(const Phase& phase, double share, Schedule::OneCycle::Anneal anneal) {
  if (anneal == Schedule::OneCycle::Anneal::kLinear)
    return phase.from + (phase.to - phase.from) * share;
  return phase.to + (phase.from - phase.to) / 2 * (1 + std::cos(M_PI * share));
}

}  // namespace

double OneCycleRate(const Schedule::OneCycle& shape, double lr, double step, double length) {
  const double first = lr / shape.start_factor, last = first / shape.end_factor;
  const double top = shape.rise * length - 1, end = length - 1;
  const std::array<Phase, 3> phases =
      shape.three_phase
          ? std::array<Phase, 3>{{{top, first, lr}, {2 * top, lr, first}, {end, first, last}}}
          : std::array<Phase, 3>{{{top, first, lr}, {end, lr, last}, {end, last, last}}};
  double begin = 0;
  for (const Phase& phase : phases) {
    if (step <= phase.end) {
      const double steps = phase.end - begin;
      return Between(phase, steps > 0 ? (step - begin) / steps : 1, shape.anneal);
    }
    begin = phase.end;
  }
  return last;
}

}  // namespace ada::optim
