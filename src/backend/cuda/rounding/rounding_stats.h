// A rounding point of an op: how its values are rounded, and where measurements are stored.
#pragma once
#include <cstdint>
#include <optional>
#include <type_traits>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rounding/next_decisions.h"

namespace ada::backend::cuda {

// Number of a kernel's blocks for which a RoundingStats has room by default.
inline constexpr int kMostStatsBlocks = 1024;

// Made once with the op. One launch measures one call's values: its last block writes the
// statistics, so that nothing is to be called afterwards. A default one rounds nothing and measures
// nothing.
class RoundingStats {
 public:
  RoundingStats() = default;
  // The rounding of `tensor`. stats, moments: null if not needed. most_blocks: the largest number
  // of blocks in a launch that uses a Rounding of this.
  RoundingStats(const Context& context, const Tensor& tensor, const RoundingStyle& style,
                TensorStats* stats, TensorMoments* moments = nullptr,
                int most_blocks = kMostStatsBlocks);
  // Rounds a gradient; without stats its values are exact and kept as they are.
  RoundingStats(const Context& context, const Gradient& gradient,
                int most_blocks = kMostStatsBlocks);
  // Records the largest magnitude of a gradient that leaves it to the op that reads it
  // (Gradient::amax_deferred); a default for another gradient.
  static RoundingStats OfLeft(const Context& context, Gradient gradient);
  // Rounds a parameter of `numel` values, stored as fp32 or in `storage`. A launch may take more of
  // it than Level says, as one over several parameters does.
  static RoundingStats OfParameter(const Context& context, const NumberFormat& format,
                                   Storage storage, std::int64_t numel, const RoundingStyle& style,
                                   TensorStats* stats, TensorMoments* moments = nullptr);
  // Leaves the largest magnitude to the op that reads the values (DefersAmax); for a gradient,
  // amax_deferred says so.
  void DeferAmax() { amax_deferred_ = true; }
  // Launches set the gradient's scale as well, to what `from` carries.
  void PassScale(const Gradient& from) { scale_from_ = from.scale; }

  // The argument of a kernel that rounds (and measures) all values of this call in one launch:
  // `values` of them; 0: those of pass.rows images. Random words depend on a value's index.
  Rounding For(const Pass& pass, std::int64_t values = 0) const;
  // Which statistics that launch takes; f(std::integral_constant<StatsLevel, level>).
  StatsLevel Level(const Pass& pass) const;
  template <class Call>
  void AtLevel(const Pass& pass, Call&& f) const;

  // out[i] = round(value(i)) for all values of the call (see round_values.h for Value).
  template <class Value>
  void Round(const Pass& pass, const TensorSpan& out, const Value& value,
             std::int64_t values = 0) const;
  // The same, where launch(kernel, std::integral_constant<StatsLevel, level>, blocks) launches it.
  template <class Value, class LaunchIt>
  void RoundWith(const Pass& pass, const TensorSpan& out, const Value& value, std::int64_t values,
                 const LaunchIt& launch) const;
  // As Round, in the plain way (round_values.h) where that can be; else nothing, and false.
  template <class Value>
  bool RoundPlainly(const Pass& pass, const TensorSpan& out, const Value& value,
                    std::int64_t values = 0) const {
    return RoundPlainly(pass, out, value, values, Launcher());
  }
  // out[i] = value(i), which lies on the tensor's grid already, with its statistics.
  template <class Value>
  void Move(const Pass& pass, const TensorSpan& out, const Value& value) const;
  // Measures what Round would of values that are stored already.
  void Count(const Pass& pass, const TensorSpan& in, std::int64_t values = 0) const;

  // With OfLeft: whether this call is to record it, and the kernel that does, in `blocks` blocks;
  // no blocks: it is not.
  bool RecordsLeft(const Pass& pass) const;
  CountValuesKernel<StatsLevel::kLargest> LeftKernel(const Pass& pass, const TensorSpan& in,
                                                     int& blocks) const;
  void CountLeft(const Pass& pass, const TensorSpan& in) const {
    if (RecordsLeft(pass)) Count(pass, in);
  }

  // How the values of this call lie where they are rounded in the plain way
  // (round_values.h); else kAny.
  StorageType PlainlyAs(const Pass& pass) const;

  // Launches a kernel that takes these statistics at this level; its last block then makes the
  // decision that looks at the moments, if there is one.
  template <class Kernel, class Level>
  void LaunchAndDecide(const Kernel& kernel, Level, int blocks) const {
    if constexpr (Level::value == StatsLevel::kMoments)
      if (const auto decide = Next())
        return LaunchInTurn(*stream_, kernel, *decide, finished_, blocks);
    Launch(*stream_, kernel, blocks);
  }
  // What the last block of a launch at StatsLevel::kMoments is to decide.
  std::optional<DecideNextKernel> Next() const {
    if (next_decisions_ == nullptr) return std::nullopt;
    return next_decisions_->Take(moments_, scale_);
  }

  bool wanted() const { return stats_ != nullptr || moments_ != nullptr; }
  // Whether anything is stored otherwise than it is: format or scale.
  bool rounds() const { return !(format_ == kFp32) || style_.per_tensor_scale != nullptr; }

 private:
  void MakeRoom(const Context& context, std::int64_t values, int most_blocks, StatsLevel most);
  auto Launcher() const {
    return [this](const auto& kernel, auto level, int blocks) {
      LaunchAndDecide(kernel, level, blocks);
    };
  }
  template <class Value, class LaunchIt>
  bool RoundPlainly(const Pass& pass, const TensorSpan& out, const Value& value,
                    std::int64_t values, const LaunchIt& launch) const;
  template <class Value, class LaunchIt>
  void LaunchOf(const Pass& pass, const TensorSpan& out, const Value& value, const Rounding& how,
                const LaunchIt& launch) const;
  template <StorageType kStorageType, class Value, class LaunchIt>
  void LaunchPlain(const Pass& pass, const TensorSpan& out, const Value& value, const Rounding& how,
                   const LaunchIt& launch) const;
  std::int64_t ValuesOf(const Pass& pass, std::int64_t values) const {
    return values > 0 ? values : per_image_ > 0 ? pass.rows * per_image_ : values_;
  }

  Stream* stream_ = nullptr;
  const PassValues* pass_ = nullptr;
  NumberFormat format_ = kFp32;
  NumberGrid grid_;
  Storage storage_ = Storage::kF32;
  RoundingStyle style_;
  TensorStats* stats_ = nullptr;
  TensorMoments* moments_ = nullptr;
  bool size_only_ = false, amax_deferred_ = false;
  std::int64_t per_image_ = 0;  // 0: a parameter
  std::int64_t values_ = 0;     // of a parameter
  float* scale_ = nullptr;      // of a gradient
  const float* scale_from_ = nullptr;
  StatsTotals* totals_ = nullptr;  // with wanted()
  double* block_sums_ = nullptr;
  NextDecisions* next_decisions_ = nullptr;  // of a gradient with moments
  std::uint32_t* finished_ = nullptr;        // blocks of a launch that decides
};

// f(std::integral_constant<StatsLevel, level>).
template <class Call>
void AtStatsLevel(StatsLevel level, Call&& f) {
  switch (level) {
    case StatsLevel::kNone:
      return f(std::integral_constant<StatsLevel, StatsLevel::kNone>{});
    case StatsLevel::kLargest:
      return f(std::integral_constant<StatsLevel, StatsLevel::kLargest>{});
    case StatsLevel::kMoments:
      return f(std::integral_constant<StatsLevel, StatsLevel::kMoments>{});
    case StatsLevel::kCounts:
      return f(std::integral_constant<StatsLevel, StatsLevel::kCounts>{});
  }
}

// Rounding to `format` in between, where nothing is measured: to nearest, unscaled.
Rounding RoundOnly(const NumberFormat& format);

template <class Call>
void RoundingStats::AtLevel(const Pass& pass, Call&& f) const {
  AtStatsLevel(Level(pass), f);
}

template <class Value, class LaunchIt>
void RoundingStats::LaunchOf(const Pass& pass, const TensorSpan& out, const Value& value,
                             const Rounding& how, const LaunchIt& launch) const {
  const FlatBlocks flat = FlatBlocksOf(how.values);
  AtLevel(pass, [&](auto level) {
    using Kernel = RoundValuesKernel<Value, decltype(level)::value>;
    launch(Kernel{{how, how.values, flat.size}, value, out}, level, flat.blocks);
  });
}

template <StorageType kStorageType, class Value, class LaunchIt>
void RoundingStats::LaunchPlain(const Pass& pass, const TensorSpan& out, const Value& value,
                                const Rounding& how, const LaunchIt& launch) const {
  const FlatBlocks flat = FlatBlocksOf(how.values);
  AtLevel(pass, [&](auto level) {
    if constexpr (decltype(level)::value != StatsLevel::kCounts) {
      using Kernel = PlainValuesKernel<kStorageType, Value, decltype(level)::value>;
      launch(Kernel{how, how.values, flat.size, value, out}, level, flat.blocks);
    }
  });
}

template <class Value, class LaunchIt>
bool RoundingStats::RoundPlainly(const Pass& pass, const TensorSpan& out, const Value& value,
                                 std::int64_t values, const LaunchIt& launch) const {
  const Rounding how = For(pass, values);
  const StorageType storage_type = PlainlyAs(pass);
  const bool fits = how.values % 8 == 0 && out.storage == storage_ && HasVec8(out);
  if (storage_type == StorageType::kAny || !fits || !value.IsPlain(storage_)) return false;
  storage_type == StorageType::kF16
      ? LaunchPlain<StorageType::kF16>(pass, out, value, how, launch)
      : LaunchPlain<StorageType::kBF16>(pass, out, value, how, launch);
  return true;
}

template <class Value, class LaunchIt>
void RoundingStats::RoundWith(const Pass& pass, const TensorSpan& out, const Value& value,
                              std::int64_t values, const LaunchIt& launch) const {
  if constexpr (HasPlain<Value>::value)
    if (RoundPlainly(pass, out, value, values, launch)) return;
  LaunchOf(pass, out, value, For(pass, values), launch);
}

template <class Value>
void RoundingStats::Round(const Pass& pass, const TensorSpan& out, const Value& value,
                          std::int64_t values) const {
  RoundWith(pass, out, value, values, Launcher());
}

template <class Value>
void RoundingStats::Move(const Pass& pass, const TensorSpan& out, const Value& value) const {
  Rounding how = For(pass);
  how.grid.exact = true, how.stochastic = false, how.per_tensor_scale = nullptr;
  LaunchOf(pass, out, value, how, Launcher());
}

}  // namespace ada::backend::cuda
