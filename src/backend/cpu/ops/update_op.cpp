// The parameter update and what is asked of all gradients at once, in segments shared by the
// workers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/ops/ops.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {
namespace {

class CpuUpdate final : public UpdateOp {
 public:
  CpuUpdate(const Context& context, const UpdateRule& rule, std::vector<UpdateSlot> slots,
            std::vector<WatchedRounding> watched)
      : context_(context), rule_(rule), slots_(std::move(slots)), watched_(std::move(watched)) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      for (std::int64_t first = 0; first < slots_[slot].value.shape.numel(); first += kSegment)
        segments_.push_back(
            {slot, first, std::min(kSegment, slots_[slot].value.shape.numel() - first)});
    squares_.resize(segments_.size());
  }

  void Look() override {
    for (const WatchedRounding& w : watched_) left_ |= !(w.stats->max_abs <= w.most);
  }

  void Update(const UpdatePlan& plan) override {
    outcome_ = {};
    outcome_.watched = std::exchange(left_, false);
    outcome_.norm = Norm();
    outcome_.overflow = !std::isfinite(outcome_.norm);
    if (plan.largest) outcome_.largest = Largest();
    if (outcome_.watched) return;
    double norm = outcome_.norm;
    if (outcome_.overflow) {
      if (plan.on_overflow == UpdatePlan::OnOverflow::kSkip) return;
      Sanitize(plan.sanitize_to);
      norm = Norm();
    }
    UpdateStep step = plan.step;
    step.gradient_factor = ClipFactor(norm, plan.clip_norm);
    Apply(step);
    outcome_.updated = true;
    outcome_.clipped = step.gradient_factor < 1;
  }

  UpdateOutcome Outcome() override { return outcome_; }

 private:
  struct Segment {
    std::size_t slot;
    std::int64_t first, n;
  };

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

  Context context_;
  UpdateRule rule_;
  std::vector<UpdateSlot> slots_;
  std::vector<WatchedRounding> watched_;
  bool left_ = false;  // one of them its format, since the last update
  std::vector<Segment> segments_;
  std::vector<double> squares_;
  UpdateOutcome outcome_;
};

}  // namespace

std::unique_ptr<UpdateOp> MakeUpdateOp(const Context& c, const UpdateRule& rule,
                                       std::vector<UpdateSlot> slots,
                                       std::vector<WatchedRounding> watched) {
  return std::make_unique<CpuUpdate>(c, rule, std::move(slots), std::move(watched));
}

}  // namespace ada::backend::cpu
