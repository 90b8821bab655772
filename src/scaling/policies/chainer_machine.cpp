// Chainer: the scale doubles with every clean attempt until the first overflow, then grows by a
// factor of growth_factor over growth_interval attempts, a little with each.
#include <cmath>

#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

class ChainerMachine final : public DynamicMachine {
 public:
  ChainerMachine(const DynamicParameters& parameters, const ScaleArithmetic& arithmetic)
      : DynamicMachine(parameters, arithmetic),
        step_(std::pow(parameters.growth_factor,
                       1.0 / static_cast<double>(parameters.growth_interval))) {}

  void OnOverflow(Move& move) override {
    overflowed_ = 1;
    Lower(move, "overflow");
  }

  void OnClean(Move& move) override {
    const bool warm = overflowed_ == 1;
    move.scale = warm ? arithmetic_.Raised(move.scale, step_) : arithmetic_.Raised(move.scale);
    move.reason = warm ? "clean step" : "no overflow so far";
  }

  std::vector<Counter> Counters() override { return {{"overflowed", &overflowed_, 0, 1}}; }

 private:
  double step_;
  std::int64_t overflowed_ = 0;  // 1 from the first overflow on
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeChainerMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<ChainerMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
