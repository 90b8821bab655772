// The parameter update and what is asked of all gradients at once, in segments shared by the
// workers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "backend/cpu/ops/matrix_updates.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/stored_update.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/update_args.h"
#include "backend/update_rounding.h"

namespace ada::backend::cpu {
namespace {

// A slot with the rule that it is updated by, and how that is done.
struct RuledSlot {
  const UpdateRule* rule;
  StoredParameter kept;
  // Whether its base and step are computed as a whole before any of it is kept.
  bool whole() const { return IsMatrixRule(*rule) || HasLength(*rule) || kept.needs_whole(); }
  // Whether the tensor decides how long a step is.
  static bool HasLength(const UpdateRule& rule) {
    return rule.kind == UpdateRule::Kind::kLamb || rule.kind == UpdateRule::Kind::kStableAdamW;
  }
  static bool IsMatrixRule(const UpdateRule& rule) {
    return rule.kind == UpdateRule::Kind::kAdafactor || rule.kind == UpdateRule::Kind::kMuon;
  }
};

// The optimizer makes one for all parameters. On a CPU the update is complete when Update returns,
// so Outcome only returns its result. Sums over segments are added in their order, whatever the
// number of threads.
class CpuUpdate final : public UpdateOp {
 public:
  CpuUpdate(const Context& context, const UpdateRule& rule, std::vector<UpdateSlot> slots,
            std::vector<WatchedRounding> watched)
      : context_(context), rule_(rule), slots_(std::move(slots)), watched_(std::move(watched)) {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const UpdateRule& own = slots_[slot].other ? *rule_.others : rule_;
      ruled_.push_back({&own, StoredParameter(own, slots_[slot])});
      for (std::int64_t first = 0; first < slots_[slot].value.shape.numel(); first += kSegment)
        // A segment belongs to one parameter, so that workers write to separate memory and counts
        // can be assigned to slots.
        segments_.push_back(
            {slot, first, std::min(kSegment, slots_[slot].value.shape.numel() - first)});
    }
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
      plan_.only_nonfinite ? Replace() : Sanitize(plan_.sanitize_to);
      norm = Norm();
    }
    UpdateStep step = plan_.step;
    step.gradient_factor = ClipFactor(norm, plan_.clip_norm);
    counted_ = plan_.count;
    Apply(step);
    outcome_.updated = true;
    outcome_.clipped = step.gradient_factor < 1;
  }

  UpdateOutcome Outcome() override { return outcome_; }

  std::vector<TensorStats> Stats() const override {
    if (!counted_) return {};
    std::vector<ParameterCounts> totals(slots_.size(), ParameterCounts::Start());
    for (std::size_t i = 0; i < segments_.size(); ++i) totals[segments_[i].slot].Merge(counts_[i]);
    return StatsOfSlots(totals);
  }
  std::vector<NewtonSchulzStats> OfNewtonSchulz() const override {
    return counted_ ? of_newton_schulz_ : std::vector<NewtonSchulzStats>();
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

  // Only what is not finite changes: NaN, and inf with its sign.
  void Replace() {
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      float* gradient = slots_[s.slot].gradient.f32() + s.first;
      for (std::int64_t k = 0; k < s.n; ++k) {
        if (std::isfinite(gradient[k])) continue;
        gradient[k] =
            std::isnan(gradient[k]) ? plan_.nan_to : std::copysign(plan_.sanitize_to, gradient[k]);
      }
    });
  }

  void Apply(const UpdateStep& step) {
    if (counted_) counts_.assign(segments_.size(), ParameterCounts::Start());
    if (counted_ && rule_.kind == UpdateRule::Kind::kMuon)
      of_newton_schulz_.assign(slots_.size(), {});
    std::vector<UpdateScalars> scalars(slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (!RuledSlot::IsMatrixRule(*ruled_[i].rule)) scalars[i] = ScalarsOf(i, step);
    context_.pool.For(static_cast<std::int64_t>(segments_.size()), [&](std::int64_t i, int) {
      const Segment& s = segments_[static_cast<std::size_t>(i)];
      const RuledSlot& ruled = ruled_[s.slot];
      if (ruled.whole()) return;
      if (ruled.kept.in_place() && !counted_) return InPlace(scalars[s.slot], s);
      ByStretches(scalars[s.slot], step, s, CountsOf(i));
    });
    std::size_t first = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      std::size_t end = first;
      while (end < segments_.size() && segments_[end].slot == slot) ++end;
      if (ruled_[slot].whole()) AsAWhole(slot, scalars[slot], step, first, end);
      first = end;
    }
  }

  // A slot's step has the rate of its group, and among muon's others theirs.
  UpdateStep StepOf(std::size_t slot, UpdateStep step) const {
    step.lr *= slots_[slot].lr;
    if (slots_[slot].other) step.lr *= rule_.others_lr;
    return step;
  }
  UpdateScalars ScalarsOf(std::size_t slot, const UpdateStep& step) const {
    UpdateRule rule = *ruled_[slot].rule;
    rule.weight_decay *= slots_[slot].decay;
    const UpdateStep own = StepOf(slot, step);
    UpdateScalars scalars = MakeUpdateScalars(rule, own);
    if (rule.kind == UpdateRule::Kind::kScheduleFree) Average(slots_[slot], rule, own, scalars);
    return scalars;
  }
  // The share of z in schedule_free's average: this step's weight, the square of the largest rate
  // so far, among the weights of all steps. Both are kept as a state.
  static void Average(const UpdateSlot& slot, const UpdateRule& rule, const UpdateStep& step,
                      UpdateScalars& scalars) {
    float *largest = slot.state3.f32(), *weights = largest + 1;
    if (step.count == 1) *largest = *weights = 0;
    *largest = std::max(*largest, static_cast<float>(step.lr));
    const float weight = *largest * *largest;
    *weights += weight;
    const double share = *weights > 0 ? static_cast<double>(weight / *weights) : 0;
    scalars.averaging = static_cast<float>(share);
    scalars.minus_step_size = static_cast<float>(step.lr * (rule.beta1 * (1 - share) - 1));
  }

  ParameterCounts* CountsOf(std::int64_t segment) {
    return counted_ ? &counts_[static_cast<std::size_t>(segment)] : nullptr;
  }

  void Run(const UpdateScalars& scalars, const Segment& s, UpdateArgs args) const {
    const RuledSlot& ruled = ruled_[s.slot];
    args.kind = ruled.rule->kind, args.scalars = scalars;
    args.arithmetic = ruled.kept.arithmetic();
    args.gradient = slots_[s.slot].gradient.f32() + s.first;
    args.n = s.n;
    // rmsprop's kernel takes three states where it takes the last.
    thread_local std::vector<float> unused;
    if (args.states[2] != nullptr && args.states[1] == nullptr) {
      if (std::ssize(unused) < s.n) unused.resize(static_cast<std::size_t>(s.n));
      args.states[1] = unused.data();
    }
    context_.kernels.update(args);
  }

  void InPlace(const UpdateScalars& scalars, const Segment& s) const {
    UpdateArgs args;
    args.value = slots_[s.slot].value.f32() + s.first;
    args.kept = ruled_[s.slot].kept.kept_in_place();
    for (std::size_t i = 0; i < kMostStates; ++i)
      if (float* state = ruled_[s.slot].kept.states()[i]) args.states[i] = state + s.first;
    Run(scalars, s, args);
  }

  // Computes a stretch in copies and keeps it: for values that are rounded, or counted.
  void ByStretches(const UpdateScalars& scalars, const UpdateStep& step, const Segment& segment,
                   ParameterCounts* counts) const {
    const StoredParameter& kept = ruled_[segment.slot].kept;
    const std::int64_t length = std::max<std::int64_t>(2048, kept.block());
    thread_local std::vector<float> memory;
    memory.resize((2 + kMostStates) * static_cast<std::size_t>(length));
    for (std::int64_t begin = 0; begin < segment.n; begin += length) {
      const Segment s{segment.slot, segment.first + begin, std::min(length, segment.n - begin)};
      Compute(
          scalars, s, memory.data(), memory.data() + length,
          [&](std::size_t i) {
            return memory.data() + (2 + static_cast<std::int64_t>(i)) * length;
          },
          [&](const ComputedStretch& computed) {
            kept.Keep(context_.kernels, computed, step.seed, static_cast<std::uint64_t>(step.count),
                      counts);
          });
    }
  }
  template <class StateAt, class Use>
  void Compute(const UpdateScalars& scalars, const Segment& s, float* base, float* change,
               const StateAt& state_at, const Use& use) const {
    const StoredParameter& kept = ruled_[s.slot].kept;
    ComputedStretch computed;
    computed.first = s.first, computed.n = s.n, computed.base = base, computed.step = change;
    UpdateArgs args;
    args.value = base, args.step = change;
    kept.Load(s.first, s.n, base);
    for (std::size_t i = 0; i < kMostStates; ++i) {
      const float* from = kept.states()[i];
      if (from == nullptr) continue;
      args.states[i] = state_at(i);
      if (args.states[i] != from + s.first)
        std::copy(from + s.first, from + s.first + s.n, args.states[i]);
      computed.states[i] = args.states[i];
    }
    Run(scalars, s, args);
    use(computed);
  }

  // A whole parameter, before any of it is kept: rules of matrices, and states with one scale.
  void AsAWhole(std::size_t slot, const UpdateScalars& scalars, const UpdateStep& step,
                std::size_t first, std::size_t end) {
    const StoredParameter& kept = ruled_[slot].kept;
    const auto n = static_cast<std::size_t>(slots_[slot].value.shape.numel());
    if (whole_.size() < (2 + kMostStates) * n) whole_.resize((2 + kMostStates) * n);
    float *base = whole_.data(), *change = base + n;
    // Where nothing is rounded or counted, states are replaced in place.
    const bool plain = kept.plain() && !counted_;
    const auto state_at = [&](std::size_t i) {
      return plain && kept.states()[i] != nullptr ? kept.states()[i] : change + (1 + i) * n;
    };
    ComputedStretch all;
    UpdateRule rule = *ruled_[slot].rule;
    rule.weight_decay *= slots_[slot].decay;
    MatrixUpdate update{&rule, &slots_[slot], StepOf(slot, step), kept.arithmetic(),
                        base,  change,        state_at(0)};
    if (RuledSlot::IsMatrixRule(rule)) {
      update.base = MastersOf(slot, base);
      if (rule.kind == UpdateRule::Kind::kAdafactor) {
        Adafactor(context_, update);
      } else {
        if (!plain) CopySegments(kept.states()[0], first, end, update.state);
        Muon(context_, update, newton_schulz_, counted_ ? &of_newton_schulz_[slot] : nullptr);
        all.states[0] = update.state;
      }
    } else {
      context_.pool.For(static_cast<std::int64_t>(end - first), [&](std::int64_t i, int) {
        const Segment& s = segments_[first + static_cast<std::size_t>(i)];
        Compute(
            scalars, s, base + s.first, change + s.first,
            [&](std::size_t k) { return state_at(k) + s.first; }, [](const auto&) {});
      });
      for (std::size_t i = 0; i < kMostStates; ++i)
        if (kept.states()[i] != nullptr) all.states[i] = state_at(i);
      if (RuledSlot::HasLength(rule)) ScaleDirection(context_, state_at(1), update);
    }
    if (plain) return AddInPlace(update, first, end);
    for (std::size_t i = 0; i < kMostStates; ++i)
      if (all.states[i] != nullptr && kept.needs_whole(i))
        all.largest[i] = LargestOf(all.states[i], first, end);
    KeepWhole(update, all, step, base, first, end);
  }
  // The masters with their low bits; `memory` is for those that are in two parts.
  const float* MastersOf(std::size_t slot, float* memory) const {
    if (ruled_[slot].rule->compensation != UpdateRule::Compensation::kRemainder)
      return slots_[slot].value.f32();
    ruled_[slot].kept.Load(0, slots_[slot].value.shape.numel(), memory);
    return memory;
  }
  void CopySegments(const float* from, std::size_t first, std::size_t end, float* to) const {
    context_.pool.For(static_cast<std::int64_t>(end - first), [&](std::int64_t i, int) {
      const Segment& s = segments_[first + static_cast<std::size_t>(i)];
      std::copy_n(from + s.first, s.n, to + s.first);
    });
  }
  void AddInPlace(const MatrixUpdate& update, std::size_t first, std::size_t end) const {
    context_.pool.For(static_cast<std::int64_t>(end - first), [&](std::int64_t i, int) {
      const Segment& s = segments_[first + static_cast<std::size_t>(i)];
      const TensorSpan terms[] = {{const_cast<float*>(update.base) + s.first, Storage::kF32},
                                  {update.change + s.first, Storage::kF32}};
      const float factors[] = {update.keep, update.factor};
      context_.kernels.sum(terms, factors, 2, {slots_[s.slot].value.f32() + s.first, Storage::kF32},
                           s.n, RoundOnly(kFp32));
    });
  }
  // base: memory for the decayed masters.
  void KeepWhole(const MatrixUpdate& update, const ComputedStretch& all, const UpdateStep& step,
                 float* base, std::size_t first, std::size_t end) {
    const auto multiply = [&](const float* from, float factor, float* to, std::int64_t n,
                              bool rounds) {
      context_.kernels.round(from, factor, {to, Storage::kF32}, n,
                             RoundOnly(rounds ? update.rule->masters.format : kFp32));
    };
    context_.pool.For(static_cast<std::int64_t>(end - first), [&](std::int64_t i, int) {
      const Segment& s = segments_[first + static_cast<std::size_t>(i)];
      ComputedStretch computed = all;
      computed.first = s.first, computed.n = s.n;
      computed.base = base + s.first, computed.step = update.change + s.first;
      multiply(update.base + s.first, update.keep, base + s.first, s.n, update.rounds_base);
      multiply(update.change + s.first, update.factor, update.change + s.first, s.n,
               update.rounds_change);
      for (const float*& state : computed.states)
        if (state != nullptr) state += s.first;
      ruled_[s.slot].kept.Keep(context_.kernels, computed, step.seed,
                               static_cast<std::uint64_t>(step.count),
                               CountsOf(static_cast<std::int64_t>(first) + i));
    });
  }
  float LargestOf(const float* values, std::size_t first, std::size_t end) const {
    std::vector<std::uint32_t> bits(end - first);
    context_.pool.For(static_cast<std::int64_t>(end - first), [&](std::int64_t i, int) {
      const Segment& s = segments_[first + static_cast<std::size_t>(i)];
      bits[static_cast<std::size_t>(i)] = context_.kernels.largest(values + s.first, s.n);
    });
    return bits.empty() ? 0.0f : std::bit_cast<float>(*std::max_element(bits.begin(), bits.end()));
  }

  Context context_;
  UpdateRule rule_;
  std::vector<UpdateSlot> slots_;
  std::vector<RuledSlot> ruled_;  // of each slot; they point to rule_ and its others
  std::vector<float> whole_;      // AsAWhole's memory
  NewtonSchulzMemory newton_schulz_;
  std::vector<NewtonSchulzStats> of_newton_schulz_;  // by slot, of the last update that counted
  std::vector<WatchedRounding> watched_;
  bool left_ = false;  // one of them its format, since the last update
  std::vector<Segment> segments_;
  std::vector<double> squares_;
  std::vector<ParameterCounts> counts_;  // by segment
  bool counted_ = false;                 // in the last update
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
