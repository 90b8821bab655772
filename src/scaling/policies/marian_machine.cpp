// Marian: above the floor an overflow is skipped and the scale falls; at the floor the gradients
// are repaired (NaN to 0, inf to the largest value) and the update takes place, so the attempt
// counts as a clean one.
#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

class MarianMachine final : public DynamicMachine {
 public:
  using DynamicMachine::DynamicMachine;

  bool Repairs(double scale) const override {
    return scale <= arithmetic_.floor() && !parameters_.error_at_min_scale;
  }

  void OnOverflow(Move& move) override {
    if (Repairs(move.scale)) {
      move.action = Action::kSanitize;
      OnClean(move);
      return;
    }
    clean_ = 0;
    Lower(move, "overflow");
  }

  void OnClean(Move& move) override {
    if (++clean_ < parameters_.growth_interval) return;
    clean_ = 0;
    Raise(move);
  }

  std::vector<Counter> Counters() override {
    return {{"growth_tracker", &clean_, 0, parameters_.growth_interval - 1}};
  }

 private:
  std::int64_t clean_ = 0;
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeMarianMachine(const DynamicParameters& parameters,
                                                  const DynamicTraits& traits) {
  return std::make_unique<MarianMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
