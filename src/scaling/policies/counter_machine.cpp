// The machine of most systems: the scale grows when a window of clean attempts is full and falls
// when the overflows that are forgiven (hysteresis) are used up. Windows that the originals take
// from iteration numbers (deepspeed, openseq2seq_backoff, mindspore) fill at the same attempts as
// this counter.
#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

class CounterMachine final : public DynamicMachine {
 public:
  CounterMachine(const DynamicParameters& parameters, const DynamicTraits& traits)
      : DynamicMachine(parameters, ScaleArithmetic(parameters, traits)),
        traits_(traits),
        overflows_left_(parameters.hysteresis) {}

  void OnOverflow(Move& move) override {
    clean_ = 0;
    if (overflows_left_ > 1) {
      --overflows_left_;
    } else {
      Lower(move, FallReason());
      if (traits_.refilled_by_fall) overflows_left_ = parameters_.hysteresis;
    }
    if (traits_.overflows_in_a_row > 0) CountRun(move);
  }

  void OnClean(Move& move) override {
    run_ = 0;
    if (traits_.refilled_by_clean || parameters_.consecutive_hysteresis) {
      overflows_left_ = parameters_.hysteresis;
    }
    if (clean_ < Full()) {
      ++clean_;
      return;
    }
    clean_ = traits_.recounts ? 1 : 0;
    overflows_left_ = parameters_.hysteresis;
    Raise(move);
  }

  std::vector<Counter> Counters() override {
    return {{"growth_tracker", &clean_, 0, Full()},
            {"overflows_left", &overflows_left_, 1, parameters_.hysteresis},
            {"overflows_in_a_row", &run_, 0, traits_.overflows_in_a_row}};
  }

 private:
  std::int64_t Full() const { return parameters_.growth_interval + traits_.lag; }

  std::string FallReason() const {
    if (parameters_.hysteresis == 1) return "overflow";
    if (!traits_.refilled_by_fall) return "overflow, hysteresis spent";
    return std::to_string(parameters_.hysteresis) + " overflows in a row";
  }

  void CountRun(Move& move) {
    if (run_ < traits_.overflows_in_a_row) {
      ++run_;
      return;
    }
    move.error = std::to_string(run_ + 1) + " overflows in a row: preset " + parameters_.preset +
                 " allows " + std::to_string(traits_.overflows_in_a_row) +
                 "; the training has diverged, lower the learning rate or look at the data";
  }

  DynamicTraits traits_;
  std::int64_t clean_ = 0;       // clean attempts of the present window
  std::int64_t overflows_left_;  // 1: the next overflow makes the scale fall
  std::int64_t run_ = 0;         // overflows in a row, where they are limited
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeCounterMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<CounterMachine>(parameters, traits);
}

}  // namespace ada::scaling
