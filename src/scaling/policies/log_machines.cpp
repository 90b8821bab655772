// Machines that hold more than a counter: the logarithm of the scale, or a list of windows.
#include <bit>
#include <cmath>
#include <limits>

#include "scaling/policies/dynamic_machine.h"

namespace ada::scaling {
namespace {

// guided-diffusion: the scale is 2^g; g rises a little at each clean attempt and falls by 1 at an
// overflow. It has no bounds.
class GuidedMachine final : public DynamicMachine {
 public:
  GuidedMachine(const DynamicParameters& parameters, const ScaleArithmetic& arithmetic)
      : DynamicMachine(parameters, arithmetic), bits_(BitsOf(parameters.init_lg_scale)) {}

  void OnOverflow(Move& move) override { MoveTo(Log() - 1, "overflow", move); }
  void OnClean(Move& move) override { MoveTo(Log() + parameters_.lg_growth, "clean step", move); }

  bool Fits(double scale) const override { return std::pow(2.0, Log()) == scale; }
  // The bits of g, which no integer counts.
  std::vector<Counter> Counters() override {
    using Limits = std::numeric_limits<std::int64_t>;
    return {{"lg_scale_bits", &bits_, Limits::min(), Limits::max()}};
  }

 private:
  static std::int64_t BitsOf(double log) { return std::bit_cast<std::int64_t>(log); }
  double Log() const { return std::bit_cast<double>(bits_); }
  void MoveTo(double log, const char* reason, Move& move) {
    bits_ = BitsOf(log);
    move.scale = std::pow(2.0, log);
    move.reason = reason;
  }

  std::int64_t bits_;
};

// mindformers' windows, rising: down from the largest, halved and cut to hundreds above 100, then
// by half of the smallest until that is reached.
std::vector<std::int64_t> WindowsOf(std::int64_t least, std::int64_t most) {
  constexpr double kInterval = 100, kFactor = 2;
  const auto smallest = static_cast<double>(least);
  std::vector<std::int64_t> falling = {most};
  for (auto window = static_cast<double>(most); window > smallest;) {
    if (window > kInterval)
      window = std::floor(window / kFactor / kInterval) * kInterval;
    else if (window == kInterval)
      window /= kFactor;
    else
      window -= smallest / kFactor;
    falling.push_back(static_cast<std::int64_t>(window));
  }
  return {falling.rbegin(), falling.rend()};
}

// The scale grows after a window without a change; three growths in a window move on to the next
// one of the list, three overflows without a growth between them to a window of 1, below the list.
class WindowListMachine final : public DynamicMachine {
 public:
  WindowListMachine(const DynamicParameters& parameters, const ScaleArithmetic& arithmetic)
      : DynamicMachine(parameters, arithmetic),
        windows_(WindowsOf(parameters.min_window, parameters.max_window)),
        window_(windows_.front()) {
    // A window that the list does not have starts with the first.
    for (std::size_t i = 0; i < windows_.size(); ++i)
      if (windows_[i] == parameters.growth_interval) {
        index_ = static_cast<std::int64_t>(i), window_ = windows_[i];
        break;
      }
  }

  void OnOverflow(Move& move) override {
    move.scale = arithmetic_.Lowered(move.scale);
    move.reason = "overflow";
    since_ = 1;
    WidenIfDue();
    falls_ = (falls_ + 1) % kCycle;
    if (falls_ == kMoves && index_ > 0) window_ = 1, index_ = kBelow, grows_ = falls_ = 0;
  }
  void OnClean(Move& move) override {
    if (window_ <= since_) {
      move.scale = arithmetic_.Raised(move.scale);
      move.reason = std::to_string(window_) + " clean steps";
      since_ = 1;
      grows_ = (grows_ + 1) % kCycle, falls_ = 0;
    } else {
      ++since_;
    }
    WidenIfDue();
  }

  bool Fits(double) const override {
    return window_ == (index_ == kBelow ? 1 : windows_[static_cast<std::size_t>(index_)]);
  }
  std::vector<Counter> Counters() override {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    return {{"scale_window", &window_, 1, kMost},
            {"list_index", &index_, kBelow, std::ssize(windows_) - 1},
            {"window_up_count", &grows_, 0, kMoves},
            {"window_down_count", &falls_, 0, kMoves},
            {"steps_since_change", &since_, 1, kMost}};
  }

 private:
  static constexpr std::int64_t kMoves = 3, kCycle = 4, kBelow = -1;
  void WidenIfDue() {
    if (grows_ != kMoves || index_ == std::ssize(windows_) - 1) return;
    grows_ = 0;
    window_ = windows_[static_cast<std::size_t>(++index_)];
  }

  std::vector<std::int64_t> windows_;
  std::int64_t window_, index_ = 0, grows_ = 0, falls_ = 0;
  std::int64_t since_ = 1;  // attempts since the last change, with this one
};

}  // namespace

std::unique_ptr<DynamicMachine> MakeGuidedMachine(const DynamicParameters& parameters,
                                                  const DynamicTraits& traits) {
  return std::make_unique<GuidedMachine>(parameters, ScaleArithmetic(parameters, traits));
}

std::unique_ptr<DynamicMachine> MakeWindowListMachine(const DynamicParameters& parameters,
                                                      const DynamicTraits& traits) {
  return std::make_unique<WindowListMachine>(parameters, ScaleArithmetic(parameters, traits));
}

}  // namespace ada::scaling
