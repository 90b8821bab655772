// fairseq: an overflow is tolerated while the share of overflows among the attempts since the last
// change stays below `tolerance`; a scale at or below 1e-4 ends the run.
#include <limits>

#include "core/text.h"
#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

constexpr double kSmallestScale = 1e-4;  // fairseq's min_loss_scale

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
    if (move.scale > kSmallestScale || !parameters_.error_at_min_scale) return;
    move.scale = before;
    move.error = "gradients overflow and the scale, " + ShortestText(before) +
                 ", would fall to fairseq's limit of 0.0001: the loss is probably exploding; lower "
                 "the learning rate, clip gradients, or set scaling.error_at_min_scale: false";
  }

  void OnClean(Move& move) override {
    ++attempts_;
    if (++clean_ < parameters_.growth_interval) return;
    clean_ = attempts_ = 0;  // the overflows stay counted
    Raise(move);
  }

  std::vector<Counter> Counters() override {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
    return {{"growth_tracker", &clean_, 0, parameters_.growth_interval - 1},
            {"attempts_since_rescale", &attempts_, 0, most},
            {"overflows_since_rescale", &overflows_, 0, most}};
  }

 private:
  std::int64_t clean_ = 0, attempts_ = 0, overflows_ = 0;
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeFairseqMachine(const DynamicParameters& parameters,
                                                   const DynamicTraits& traits) {
  return std::make_unique<FairseqMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
