// What is kept is rounded once, after the rule; what rounding takes goes where the compensation
// says.
#include "backend/cpu/ops/stored_update.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {
namespace {

using Kind = UpdateRule::Kind;
using Compensation = UpdateRule::Compensation;

// An fp32 master as a bf16 weight and its 16 low bits, which are kept as a signed number: the
// weight is rounded half up in magnitude, so a set top bit of the low ones says that it was.
float Joined(float weight, float low) {
  const auto bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(low)) & 0xffffu;
  return OfBits(((BitsOf(weight) >> 16) - (bits >> 15)) << 16 | bits);
}
float WeightOf(float master) {
  const std::uint32_t bits = BitsOf(master);
  return OfBits(((bits >> 16) + (bits >> 15 & 1u)) << 16);
}
float LowBitsOf(float master) {
  return static_cast<float>(static_cast<std::int16_t>(BitsOf(master) & 0xffffu));
}

// The index of the average by whose root (or by which) a rule divides its first state.
int DenominatorOf(const UpdateRule& rule) {
  switch (rule.kind) {
    case Kind::kAdam:
    case Kind::kAdamW:
      return rule.amsgrad ? 2 : 1;
    case Kind::kNadam:
    case Kind::kRadam:
    case Kind::kAdamax:
    case Kind::kAdopt:
    case Kind::kAdemamix:
    case Kind::kLamb:
    case Kind::kStableAdamW:
      return 1;
    default:
      return -1;
  }
}

TensorSpan SpanOf(const float* values) { return {const_cast<float*>(values), Storage::kF32}; }

}  // namespace

StoredParameter::StoredParameter(const UpdateRule& rule, const UpdateSlot& slot)
    : rule_(rule), slot_(slot), masters_(GridOf(rule.masters.format)) {
  const bool in_format = rule.arithmetic != UpdateRule::Arithmetic::kFp32;
  if (in_format && !masters_.exact) arithmetic_ = masters_;
  const bool alone = rule.compensation == Compensation::kNone;
  plain_ = masters_.exact && alone;
  in_place_ = plain_ || (alone && !rule.masters.stochastic && RoundsDirectly(masters_));
  kept_in_.value = DirectOf(masters_);
  const std::int64_t values = slot.value.shape.numel();
  const std::array<Tensor, kMostStates> states = {slot.state1, slot.state2, slot.state3};
  const std::array<Tensor, kMostStates> scales = {slot.scale1, slot.scale2, slot.scale3};
  for (std::size_t i = 0; i < kMostStates; ++i) {
    const bool pair = rule.kind == Kind::kScheduleFree && i == 2;
    if (!states[i] || rule.kind == Kind::kAdafactor || pair) continue;
    states_[i] = states[i].f32();
    if (scales[i]) scales_[i] = scales[i].f32();
    kept_[i] = StateStorageOf(rule, i);
    if (IsCoded(kept_[i], values)) {
      coders_[i].emplace(kept_[i]);
      if (kept_[i].scaling == StateStorage::Scaling::kBlock)
        block_ = std::max(block_, kept_[i].block);
    } else if (kept_[i].is_scaled()) {
      kept_[i] = {};  // too small: fp32
    }
    grids_[i] = GridOf(FormatOf(i));
    plain_ = plain_ && grids_[i].exact && !coders_[i];
    // Arithmetic in a format gives its values.
    const bool computed = arithmetic_ && grids_[i] == *arithmetic_;
    in_place_ = in_place_ && !coders_[i] &&
                (grids_[i].exact ||
                 (!kept_[i].stochastic && (arithmetic_ ? computed : RoundsDirectly(grids_[i]))));
    kept_in_.states[i] = DirectOf(grids_[i]);
  }
  denominator_ = DenominatorOf(rule);
}

void StoredParameter::Load(std::int64_t first, std::int64_t n, float* master) const {
  const float* value = slot_.value.f32() + first;
  if (rule_.compensation != Compensation::kRemainder) {
    std::copy(value, value + n, master);
    return;
  }
  const float* low = slot_.rest.f32() + first;
  for (std::int64_t i = 0; i < n; ++i) master[i] = Joined(value[i], low[i]);
}

// Kahan's sum as torch-optimi has it: the compensation gathers steps, and what the weight did not
// take of it.
float StoredParameter::NewMaster(float base, float step, std::int64_t i, const UpdateRounding& how,
                                 float* rest) const {
  const auto keep = [&](float x) {
    return RoundToStorage(masters_, rule_.masters.stochastic, how, slot_.stream, 0, i, x);
  };
  if (rule_.compensation == Compensation::kKahan) {
    const float sum = RoundToGrid(masters_, *rest + step), weight = keep(base + sum);
    *rest = RoundToGrid(masters_, sum + RoundToGrid(masters_, base - weight));
    return weight;
  }
  if (rule_.compensation == Compensation::kRemainder) {
    const float master = base + step;
    *rest = LowBitsOf(master);
    return WeightOf(master);
  }
  return keep(base + step);
}

void StoredParameter::KeepMasters(const ComputedStretch& computed, const UpdateRounding& how,
                                  ParameterCounts* counts) const {
  float* value = slot_.value.f32() + computed.first;
  float* rest = slot_.rest ? slot_.rest.f32() + computed.first : nullptr;
  for (std::int64_t i = 0; i < computed.n; ++i) {
    const float before = value[i], base = computed.base[i], step = computed.step[i];
    const float rest_before = rest != nullptr ? rest[i] : 0;
    // What the rule started from: the weight, or that with its low bits.
    const float from =
        rule_.compensation == Compensation::kRemainder ? Joined(before, rest_before) : before;
    value[i] = NewMaster(base, step, computed.first + i, how, rest != nullptr ? rest + i : nullptr);
    if (counts == nullptr) continue;
    const bool rest_moved = rest != nullptr && rest[i] != rest_before;
    counts->of[0].AddChange(masters_, step + (base - from), before, base + step, value[i],
                            rest_moved);
    if (!masters_.exact) counts->of[1].AddStored(masters_, base + step, value[i]);
  }
}

void StoredParameter::Keep(const Kernels& kernels, const ComputedStretch& computed,
                           std::uint64_t seed, std::uint64_t draw, ParameterCounts* counts) const {
  UpdateRounding how;
  how.seed = seed, how.draw = draw;
  if (counts == nullptr && rule_.compensation == Compensation::kNone && !rule_.masters.stochastic) {
    const TensorSpan terms[] = {SpanOf(computed.base), SpanOf(computed.step)};
    kernels.sum(terms, nullptr, 2, SpanOf(slot_.value.f32() + computed.first), computed.n,
                RoundOnly(rule_.masters.format));
  } else {
    KeepMasters(computed, how, counts);
  }
  for (std::size_t i = 0; i < kMostStates; ++i)
    if (computed.states[i] != nullptr) KeepState(kernels, i, computed, how, counts);
  if (counts != nullptr && denominator_ >= 0) CountPairs(computed, counts);
}

void StoredParameter::KeepState(const Kernels& kernels, std::size_t state,
                                const ComputedStretch& computed, const UpdateRounding& how,
                                ParameterCounts* counts) const {
  const StateStorage& kept = kept_[state];
  const NumberGrid& grid = grids_[state];
  const int part = static_cast<int>(state) + 1;
  const float* wide = computed.states[state];
  float* to = states_[state] + computed.first;
  if (!coders_[state] && !kept.stochastic) {
    kernels.round(wide, 1, SpanOf(to), computed.n, RoundOnly(FormatOf(state)));
  } else if (!coders_[state]) {
    for (std::int64_t i = 0; i < computed.n; ++i)
      to[i] = RoundToStorage(grid, kept.stochastic, how, slot_.stream, part, computed.first + i,
                             wide[i]);
  } else {
    const StateCoder& coder = *coders_[state];
    const bool whole = kept.scaling == StateStorage::Scaling::kTensor;
    const std::int64_t block = whole ? computed.n : kept.block;
    for (std::int64_t begin = 0; begin < computed.n; begin += block) {
      const std::int64_t end = std::min(begin + block, computed.n);
      float largest = whole ? computed.largest[state] : 0;
      for (std::int64_t i = begin; i < end && !whole; ++i)
        largest = std::max(largest, std::fabs(wide[i]));
      const float scale = StateScale(kept, largest);
      for (std::int64_t i = begin; i < end; ++i) to[i] = coder(wide[i], scale);
      if (scales_[state] != nullptr)
        scales_[state][whole ? 0 : (computed.first + begin) / block] = scale;
    }
  }
  if (counts == nullptr || (grid.exact && !coders_[state])) return;
  UpdateCounts& found = counts->of[part + 1];
  for (std::int64_t i = 0; i < computed.n; ++i) found.AddStored(grid, wide[i], to[i]);
  // A value lies below the smallest code where it becomes zero.
  if (coders_[state]) found.below = found.zeros_after;
}

void StoredParameter::CountPairs(const ComputedStretch& computed, ParameterCounts* counts) const {
  const auto of = static_cast<std::size_t>(denominator_);
  if (states_[0] == nullptr || states_[of] == nullptr) return;
  if (grids_[of].exact && !coders_[of]) return;
  for (std::int64_t i = computed.first; i < computed.first + computed.n; ++i)
    counts->of[denominator_ + 2].AddPair(states_[0][i], states_[of][i]);
}

}  // namespace ada::backend::cpu
