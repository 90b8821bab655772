// The parameter update and what is asked of all gradients at once, in segments shared by the
// workers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/update_rounding.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {
namespace {

// The optimizer makes one for all parameters. On a CPU the update is complete when Update returns,
// so Outcome only returns its result. Sums over segments are added in their order, whatever the
// number of threads.
class CpuUpdate final : public UpdateOp {
 public:
  CpuUpdate(const Context& context, const UpdateRule& rule, std::vector<UpdateSlot> slots,
            std::vector<WatchedRounding> watched)
      : context_(context), rule_(rule), slots_(std::move(slots)), watched_(std::move(watched)) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      for (std::int64_t first = 0; first < slots_[slot].value.shape.numel(); first += kSegment)
        // A segment belongs to one parameter, so that workers write to separate memory and counts
        // can be assigned to slots.
        segments_.push_back(
            {slot, first, std::min(kSegment, slots_[slot].value.shape.numel() - first)});
    squares_.resize(segments_.size());
  }

  void CheckWatched() override {
    for (const WatchedRounding& w : watched_) left_ |= !(w.stats->max_abs <= w.most);
  }

  void Plan(const UpdatePlan& plan) override { plan_ = plan; }

  void Update() override {
    outcome_ = {};
    counted_ = false;
    // The norm and the largest magnitude are those of the gradients as they came, taken also where
    // nothing will be updated: the logs want them.
    outcome_.watched = std::exchange(left_, false);
    outcome_.norm = Norm();
    outcome_.overflow = !std::isfinite(outcome_.norm);
    if (plan_.largest) outcome_.largest = Largest();
    // A watched rounding that left its format cannot be repaired by sanitizing gradients.
    if (outcome_.watched) return;
    double norm = outcome_.norm;
    if (outcome_.overflow) {
      // After sanitizing, clipping uses the norm of the sanitized gradients, while outcome_.norm
      // stays the one before.
      if (plan_.on_overflow == UpdatePlan::OnOverflow::kSkip) return;
      Sanitize(plan_.sanitize_to);
      norm = Norm();
    }
    UpdateStep step = plan_.step;
    step.gradient_factor = ClipFactor(norm, plan_.clip_norm);
    counted_ = plan_.count;
    if (counted_ || KeepsFewerBits(rule_))
      ApplyKept(step);
    else
      Apply(step);
    outcome_.updated = true;
    outcome_.clipped = step.gradient_factor < 1;
  }

  UpdateOutcome Outcome() override { return outcome_; }

  std::vector<TensorStats> Stats() const override {
    if (!counted_) return {};
    std::vector<KeptCounts> totals(slots_.size(), KeptCounts::Start());
    for (std::size_t i = 0; i < segments_.size(); ++i) totals[segments_[i].slot].Merge(counts_[i]);
    return StatsOfSlots(totals);
  }

 private:
  struct Segment {
    std::size_t slot;
    std::int64_t first, n;
  };

  // The L2 norm of all gradients, not finite where a gradient is not.
  double Norm() {
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      squares_[static_cast<std::size_t>(i)] =
          context_.kernels.sum_squares(slots_[s.slot].gradient.f32() + s.first, s.n);
    });
    double sum = 0;
    for (const double square : squares_) sum += square;
    return std::sqrt(sum);
  }

  float Largest() const {
    std::vector<std::uint32_t> bits(segments_.size());
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      bits[static_cast<std::size_t>(i)] =
          context_.kernels.largest(slots_[s.slot].gradient.f32() + s.first, s.n);
    });
    // As bits a NaN is the largest.
    return bits.empty() ? 0.0f : std::bit_cast<float>(*std::max_element(bits.begin(), bits.end()));
  }

  // NaN become 0, and magnitudes above `largest` become it.
  void Sanitize(float largest) {
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      context_.kernels.sanitize(slots_[s.slot].gradient.f32() + s.first, s.n, largest);
    });
  }

  void Apply(const UpdateStep& step) {
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      context_.kernels.update(rule_, step, slots_[s.slot], s.first, s.n);
    });
  }

  // The slower way, value by value, for masters or state stored in fewer bits than fp32, or
  // if the update is counted: each value is updated in fp32 and rounded once, when it is
  // stored.
  void ApplyKept(const UpdateStep& step) {
    const UpdateRounding how = MakeUpdateRounding(rule_, step);
    if (counted_) counts_.assign(segments_.size(), KeptCounts::Start());
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      ApplyKept(step, how, s, counted_ ? &counts_[static_cast<std::size_t>(i)] : nullptr);
    });
  }
  void ApplyKept(const UpdateStep& step, const UpdateRounding& how, const Segment& segment,
                 KeptCounts* counts) {
    const UpdateSlot& slot = slots_[segment.slot];
    const UpdateScalars s = MakeUpdateScalars(rule_, step, slot.lr, slot.decay);
    // SGD has state1 under momentum only, Adam both states.
    const bool adam = rule_.kind != UpdateRule::Kind::kSgd;
    float *value = slot.value.f32(), *state1 = slot.state1.f32(), *state2 = slot.state2.f32();
    for (std::int64_t i = segment.first; i < segment.first + segment.n; ++i) {
      KeptWeight kept{value[i], state1 ? state1[i] : 0, state2 ? state2[i] : 0};
      UpdateKept(s, how, adam, state1 != nullptr, slot.stream, i, slot.gradient.f32()[i], kept,
                 counts);
      value[i] = kept.value;
      if (state1) state1[i] = kept.state1;
      if (state2) state2[i] = kept.state2;
    }
  }

  Context context_;
  UpdateRule rule_;
  std::vector<UpdateSlot> slots_;
  std::vector<WatchedRounding> watched_;
  bool left_ = false;  // one of them its format, since the last update
  std::vector<Segment> segments_;
  std::vector<double> squares_;
  std::vector<KeptCounts> counts_;  // by segment
  bool counted_ = false;            // in the last update
  UpdatePlan plan_;
  UpdateOutcome outcome_;
};

}  // namespace

std::unique_ptr<UpdateOp> MakeUpdateOp(const Context& c, const UpdateRule& rule,
                                       std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) {
  return std::make_unique<CpuUpdate>(c, rule, std::move(slots), std::move(watched));
}

}  // namespace ada::backend::cpu
