// Cerebras: the scale falls when the share of overflows since the last change exceeds `tolerance`
// (in fp32, as there), and grows after growth_interval attempts without a change, tolerated
// overflows among them.
#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

class CerebrasMachine final : public DynamicMachine {
 public:
  using DynamicMachine::DynamicMachine;

  void OnOverflow(Move& move) override {
    ++attempts_;
    ++overflows_;
    const float share = static_cast<float>(overflows_) / static_cast<float>(attempts_);
    if (share > static_cast<float>(parameters_.tolerance)) {
      Lower(move, "overflow: " + Share());
      attempts_ = overflows_ = 0;
    }
    Finish(move);
  }

  void OnClean(Move& move) override {
    ++attempts_;
    // Overflows that were tolerated leave a share below the tolerance, and it only sinks.
    Finish(move);
  }

  std::vector<Counter> Counters() override {
    return {{"attempts_since_rescale", &attempts_, 0, parameters_.growth_interval - 1},
            {"overflows_since_rescale", &overflows_, 0, parameters_.growth_interval - 1}};
  }

 private:
  std::string Share() const {
    return std::to_string(overflows_) + " of " + std::to_string(attempts_) + " attempts";
  }

  void Finish(Move& move) {
    if (attempts_ >= parameters_.growth_interval) {
      move.scale = arithmetic_.Raised(move.scale);
      move.reason = std::to_string(attempts_) + " steps since the last change";
      attempts_ = overflows_ = 0;
    }
    const double clamped = arithmetic_.Clamped(move.scale);
    if (clamped == move.scale) return;
    if (move.reason.empty()) move.reason = clamped < move.scale ? "max_scale" : "min_scale";
    move.scale = clamped;
  }

  std::int64_t attempts_ = 0, overflows_ = 0;  // since the last change of the scale
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeCerebrasMachine(const DynamicParameters& parameters,
                                                    const DynamicTraits& traits) {
  return std::make_unique<CerebrasMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
