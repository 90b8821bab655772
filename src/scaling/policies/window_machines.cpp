// Machines whose scale grows when a window of clean attempts is full, or at each clean attempt.
#include <cmath>

#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

// The machine of most systems: the scale grows when a window of clean attempts is full and falls
// when more overflows came than are tolerated (hysteresis). Windows that the originals derive from
// iteration numbers (deepspeed, openseq2seq_backoff, mindspore) end at the same attempts as with
// this counter.
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
  // The number of clean attempts that must precede the one at which the scale grows.
  std::int64_t Full() const { return parameters_.growth_interval + traits_.lag; }

  std::string FallReason() const {
    if (parameters_.hysteresis == 1) return "overflow";
    if (!traits_.refilled_by_fall) return "overflow, hysteresis spent";
    return std::to_string(parameters_.hysteresis) + " overflows in a row";
  }

  // Counts up to the limit; the next overflow after that ends the run (mindspore).
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
  std::int64_t clean_ = 0;       // clean attempts of the current window
  std::int64_t overflows_left_;  // 1: the next overflow makes the scale fall
  std::int64_t run_ = 0;         // overflows in a row, where they are limited
};

// Marian: above the floor an overflow is skipped and the scale falls; at the floor the gradients
// are sanitized (NaN to 0, inf to the largest value) and the update takes place, so that the
// attempt counts as a clean one.
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

// Chainer: the scale doubles at every clean attempt until the first overflow; after that it grows a
// little at each, by a factor of growth_factor over growth_interval attempts.
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

std::unique_ptr<DynamicMachine> MakeCounterMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<CounterMachine>(parameters, traits);
}

std::unique_ptr<DynamicMachine> MakeMarianMachine(const DynamicParameters& parameters,
                                                  const DynamicTraits& traits) {
  return std::make_unique<MarianMachine>(parameters, ScaleArithmetic(parameters, traits));
}

std::unique_ptr<DynamicMachine> MakeChainerMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<ChainerMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
