// Machines that tolerate overflows up to a share of the attempts since the last change.
#include <limits>

#include "io/text.h"
#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

// fairseq: an overflow is tolerated as long as the share of overflows among the attempts since the
// last change stays below `tolerance`; a scale at or below 1e-4 ends the run.
class FairseqMachine final : public DynamicMachine {
 public:
  using DynamicMachine::DynamicMachine;

  void OnOverflow(Move& move) override {
    const double before = move.scale;
    clean_ = 0;
    ++attempts_;
    ++overflows_;
    if (static_cast<double>(overflows_) / static_cast<double>(attempts_) >= parameters_.tolerance) {
      move.scale = arithmetic_.Lowered(move.scale);
      move.reason = parameters_.tolerance > 0 ? "overflow: " + std::to_string(overflows_) + " of " +
                                                    std::to_string(attempts_) + " attempts"
                                              : "overflow";
      attempts_ = overflows_ = 0;
    }
    // On an error the scale stays the one that overflowed.
    if (move.scale > kSmallestScale || !parameters_.error_at_min_scale) return;
    move.scale = before;
    move.error = "gradients overflow and the scale, " + ShortestText(before) +
                 ", would fall to fairseq's limit of 0.0001: the loss is probably exploding; lower "
                 "the learning rate, clip gradients, or set scaling.error_at_min_scale: false";
  }

  void OnClean(Move& move) override {
    ++attempts_;
    if (++clean_ < parameters_.growth_interval) return;
    clean_ = attempts_ = 0;  // the count of overflows is not reset
    Raise(move);
  }

  std::vector<Counter> Counters() override {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
    return {{"growth_tracker", &clean_, 0, parameters_.growth_interval - 1},
            {"attempts_since_rescale", &attempts_, 0, most},
            {"overflows_since_rescale", &overflows_, 0, most}};
  }

 private:
  static constexpr double kSmallestScale = 1e-4;  // fairseq's min_loss_scale
  std::int64_t clean_ = 0, attempts_ = 0, overflows_ = 0;
};

// Cerebras: the scale falls when the share of overflows since the last change exceeds `tolerance`
// (in fp32, as there), and grows after growth_interval attempts without a change, tolerated
// overflows among them.
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
    // After tolerated overflows the share is below the tolerance, and it can only decrease.
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

std::unique_ptr<DynamicMachine> MakeFairseqMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<FairseqMachine>(parameters, ScaleArithmetic(parameters, traits));
}

std::unique_ptr<DynamicMachine> MakeCerebrasMachine(const DynamicParameters& parameters,
                                                    const DynamicTraits& traits) {
  return std::make_unique<CerebrasMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
