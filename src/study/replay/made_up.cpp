// Attempts that overflow at fixed distances, at random, or both.
#include <cmath>

#include "io/text.h"
#include "number/random.h"
#include "study/replay/attempts.h"

namespace ada::study {
namespace {

// Each attempt draws the same numbers whatever the pattern asks of it: seeds stay comparable.
class MadeUp : public Attempts {
 public:
  MadeUp(const ReplayPattern& pattern, bool wants_amax)
      : pattern_(pattern), wants_amax_(wants_amax), random_(pattern.seed, StreamId("replay")) {}

  bool Next(scaling::StepOutcome& outcome) override {
    ++attempt_;
    outcome = {};
    outcome.overflow = pattern_.every > 0 && attempt_ % pattern_.every == 0;
    // The random number is drawn first, so it is drawn also where the attempt overflows anyway.
    outcome.overflow = random_.Uniform() < pattern_.overflow || outcome.overflow;
    const double magnitude = std::exp2(random_.Normal());
    if (wants_amax_) outcome.amax = outcome.overflow ? INFINITY : magnitude;
    return true;
  }

  std::string Describe() const override {
    std::string text = "made-up trace of " + Counted(pattern_.steps, "step") + ": ";
    if (pattern_.every == 0 && pattern_.overflow == 0) return text + "nothing overflows";
    if (pattern_.every > 0) text += "1 attempt in " + std::to_string(pattern_.every) + " overflows";
    if (pattern_.every > 0 && pattern_.overflow > 0) text += ", ";
    if (pattern_.overflow > 0)
      text += ShortestText(100 * pattern_.overflow) + " % at random (seed " +
              std::to_string(pattern_.seed) + ")";
    return text;
  }

 private:
  const ReplayPattern pattern_;
  const bool wants_amax_;
  RandomStream random_;
  std::int64_t attempt_ = 0;
};

}  // namespace

std::unique_ptr<Attempts> MakeUp(const ReplayPattern& pattern, bool wants_amax) {
  return std::make_unique<MadeUp>(pattern, wants_amax);
}

}  // namespace ada::study
