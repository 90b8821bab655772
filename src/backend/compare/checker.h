// Finds all that an op writes in a call, compares what two backends wrote, and overwrites the
// second's memory with the first's, so that the next op reads the same on both. A new kind of layer
// needs nothing here if its spec's members have the usual names.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/compare/tolerances.h"
#include "backend/op.h"
#include "backend/update.h"
#include "error.h"
#include "number/blocks/block_counts.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

template <class T>
double AsDouble(T x) {
  return static_cast<double>(x);
}
using Numbers = std::vector<double>;
template <class... T>
Numbers NumbersOf(T... numbers) {
  return {AsDouble(numbers)...};
}

inline constexpr char kCounts[] =
    "zeros_before,zeros_after,underflow,below_min,subnormal,overflow,inf,nan,above_edge";
inline Numbers CountsOf(const TensorStats& s) {
  return NumbersOf(s.zeros_before, s.zeros_after, s.underflow, s.below_min, s.subnormal, s.overflow,
                   s.inf, s.nan, s.above_edge);
}
inline constexpr char kTotals[] = "min_abs,mean,l1,l2,std";
inline Numbers TotalsOf(const TensorStats& s) {
  return NumbersOf(s.min_abs, s.mean, s.l1, s.l2, s.std);
}

// The first two are always valid, the others only with Gradient::all_moments.
inline constexpr char kMoments[] =
    "mean square,largest magnitude,smallest,largest,smallest magnitude,mean";
inline Numbers MomentsOf(const TensorMoments& m) {
  return NumbersOf(m.mean_square, std::max(-m.min, m.max), m.min, m.max, m.min_abs, m.mean);
}

inline constexpr char kBlockCounts[] =
    "blocks,zero_blocks,broken_blocks,scaled_blocks,noisy_blocks,values,zeros,inf,nan,"
    "lost_beside_largest,lost_tensor_scale,lost_scale_floor,lost_scale_rounding,saturated,at_floor,"
    "at_ceiling";
inline Numbers CountsOf(const BlockCounts& c) {
  return NumbersOf(c.blocks, c.zero_blocks, c.broken_blocks, c.scaled_blocks, c.noisy_blocks,
                   c.numel, c.zeros, c.inf, c.nan, c.lost_beside_largest, c.lost_tensor_scale,
                   c.lost_scale_floor, c.lost_scale_rounding, c.saturated, c.at_floor,
                   c.at_ceiling);
}
inline constexpr char kBlockTotals[] =
    "log2_min,log2_max,log2_sum,log2_square_sum,sqnr_sum,sqnr_worst,signal,noise";
inline Numbers TotalsOf(const BlockCounts& c) {
  return NumbersOf(c.log2_min, c.log2_max, c.log2_sum, c.log2_square_sum, c.sqnr_sum, c.sqnr_worst,
                   c.signal, c.noise);
}

inline constexpr char kResult[] = "loss,locations,top1,top5";
inline Numbers ResultOf(const LossResult& r) {
  return NumbersOf(r.loss_sum, r.location_sum, r.top1, r.top5);
}
inline constexpr char kOutcome[] = "overflow,largest,watched,updated,clipped,norm";
inline Numbers OutcomeOf(const UpdateOutcome& o) {
  return NumbersOf(o.overflow, o.largest, o.watched, o.updated, o.clipped, o.norm);
}

// What is decided of a scale, and what follows from the power of two.
inline constexpr char kStages[] = "limit,error,halvings,scale_in,unbound,bound";
inline Numbers StagesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.limit, d.error, d.halvings, d.scale_in, d.unbound, d.bound);
}
inline constexpr char kScales[] = "pow2,alpha,scale_out";
inline Numbers ScalesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.pow2, d.alpha, d.scale_out);
}

inline constexpr char kState[] = "calls,unbound,tail's largest";
inline Numbers StateOf(const scaling::LayerState& s) {
  return NumbersOf(s.calls, s.unbound, s.tail.largest);
}

// How values are spread over exponents; with those that have none.
inline Numbers BinsOf(const ExponentBins& bins) {
  Numbers all(bins.counts.begin(), bins.counts.end());
  for (const std::int64_t n : {bins.zeros, bins.inf, bins.nan}) all.push_back(AsDouble(n));
  return all;
}
inline Numbers BinsOf(const scaling::ExponentTail& tail) {
  Numbers all(tail.bins, tail.bins + tail.kBins);
  all.push_back(AsDouble(tail.nonzero));
  return all;
}

// --- Outputs ---

enum class Phase : std::uint8_t { kForward, kBackward, kRefresh };

// A tensor that an op writes, and what the op records about it.
struct Output {
  std::string name;
  Gradient is = {};             // no data: rounded and counted, but not stored
  std::int64_t images = 0;      // that are written
  NumberFormat format = kFp32;  // to which values are rounded
  bool parameter = false;
  scaling::LayerScaler* scaler = nullptr;
  scaling::ScaleDecision* decision = nullptr;  // if it is not a scaler's
  BlockCounts* blocks = nullptr;
  scaling::TensorScaler* current = nullptr;  // OperandRounding::current
};
using Outputs = std::vector<Output>;
inline void AddParameter(Outputs& all, const char* name, const Tensor& tensor,
                         const NumberFormat& format = kFp32) {
  if (!tensor) return;
  all.push_back({name, {}, tensor.shape.n, format, true});
  all.back().is.tensor = tensor;
}

// What an update and running averages write.
inline Outputs StoredBy(const UpdateRule& rule, const std::vector<UpdateSlot>& slots) {
  Outputs all;
  for (const UpdateSlot& slot : slots) {
    AddParameter(all, "value", slot.value, rule.masters.format);
    AddParameter(all, "state1", slot.state1, rule.state.format);
    AddParameter(all, "state2", slot.state2, rule.state.format);
  }
  return all;
}
inline Outputs StoredBy(const std::vector<AverageSlot>& slots) {
  Outputs all;
  for (const AverageSlot& slot : slots) AddParameter(all, "average", slot.average);
  return all;
}

template <class Spec>
Outputs OutputsOf(const Spec& s, Phase phase, std::int64_t rows) {
  Outputs all;
  const auto gradient = [&](const char* name, const Gradient& g,
                            scaling::LayerScaler* scaler = nullptr) {
    if (g) all.push_back({name, g, rows, g.tensor.format, false, scaler});
  };
  const auto add = [&](const char* name, const Tensor& tensor, const NumberFormat& format,
                       const RoundingStyle& style = {}, TensorStats* stats = nullptr) -> Output& {
    Gradient is{.tensor = tensor, .stats = stats, .style = style};
    return all.emplace_back(Output{name, is, rows, format});
  };
  if constexpr (requires { s.operands; })
    for (std::size_t i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      const OperandRounding& how = s.operands[i];
      Phase when = operand == Operand::kForwardX ? Phase::kForward : Phase::kBackward;
      if (IsWeight(operand)) when = Phase::kRefresh;
      if (!how.rounds || phase != when) continue;
      Output& out = add(NameOf(operand), {}, how.format, how.style, how.stats);
      out.blocks = how.block_counts, out.current = how.current;
    }
  if constexpr (requires { s.attention_operands; })
    for (std::size_t i = 0; i < kAttentionOperands; ++i) {
      const OperandRounding& how = s.attention_operands[i];
      const bool forward = i < IndexOf(AttentionOperand::kDvP);
      if (!how.rounds || phase != (forward ? Phase::kForward : Phase::kBackward)) continue;
      Output& out = add(kAttentionOperandNames[i], {}, how.format, how.style, how.stats);
      out.blocks = how.block_counts, out.current = how.current;
    }
  if (phase == Phase::kRefresh) {
    if constexpr (requires { s.w_stats; }) add("w", {}, s.w_format, s.w_style, s.w_stats);
  } else if (phase == Phase::kForward) {
    if constexpr (requires { s.p_stats; }) add("p", {}, s.p_format, s.p_style, s.p_stats);
    if constexpr (requires { s.running_var; }) {
      if (s.addend) add("y", {}, s.y_format, s.y_style, s.y_stats);
      add(s.addend ? "sum" : "y", s.out, s.out.format, s.addend ? s.sum_style : s.y_style,
          s.addend ? s.sum_stats : s.y_stats);
      AddParameter(all, "running_mean", s.running_mean),
          AddParameter(all, "running_var", s.running_var);
    } else if constexpr (requires { s.y_style; }) {
      add("y", s.y, s.y.format, s.y_style, s.y_stats);
    } else if constexpr (requires { s.y; }) {
      add("y", s.y, s.y.format);
    }
  } else {
    if constexpr (requires { s.scalers; }) {
      static constexpr const char* kNames[] = {"dq", "dk", "dv"};
      const std::size_t decisions[] = {s.kDq, s.kDk, s.kDv};
      Output& ds = add("ds", {}, s.ds_format, s.ds_style, s.ds_stats);
      ds.is.scale = s.ds_scale, ds.scaler = s.scalers[s.kDs];
      for (std::size_t i = 0; i < s.dx.size(); ++i)
        gradient(kNames[i], s.dx[i], s.scalers[decisions[i]]);
    } else if constexpr (requires { s.scaler; }) {
      gradient("dx", s.dx, s.scaler);
    } else if constexpr (requires { s.dx.begin(); }) {
      for (const Gradient& dx : s.dx) gradient("dx", dx);
    } else if constexpr (requires { s.dx; }) {
      gradient("dx", s.dx);
    }
    if constexpr (requires { s.dlogits; }) gradient("dx", s.dlogits);
    if constexpr (requires { s.dscores; }) gradient("dx", s.dlocations), gradient("dx2", s.dscores);
    if constexpr (requires { s.branches; })
      gradient("sum", s.sum), all.back().decision = s.decision;
    if constexpr (requires { s.dw; }) AddParameter(all, "dw", s.dw);
    if constexpr (requires { s.dw_stats; })
      if (s.dw) {
        Output& dw = all.back();
        dw.format = s.dw_format, dw.is.style = s.dw_style, dw.is.stats = s.dw_stats;
      }
    if constexpr (requires { s.db; }) {
      AddParameter(all, "db", s.db);
      if (s.db && s.reference) all.back().format = s.dw_format;
    }
    if constexpr (requires { s.dgamma; })
      AddParameter(all, "dgamma", s.dgamma), AddParameter(all, "dbeta", s.dbeta);
    if constexpr (requires { s.running_var; })  // dy is masked in place
      if (s.relu && s.dgamma && s.dx.tensor.data != s.dy.tensor.data)
        add("dy", s.dy.tensor, s.dy.tensor.format);
  }
  return all;
}

// The memory of two backends: whatever one allocates, the other does too. Places are named by the
// first one's addresses, which are those that the graph sees.
class PairedMemory {
 public:
  PairedMemory(Backend& first, Backend& second) : sides_{&first, &second} {}

  std::byte* Allocate(std::size_t bytes) {
    return Keep({sides_[0]->Allocate(bytes), nullptr, bytes}, {sides_[1]->Allocate(bytes)}).backend;
  }
  SharedMemory AllocateShared(std::size_t bytes) {
    return Keep(sides_[0]->AllocateShared(bytes), sides_[1]->AllocateShared(bytes));
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) {
    sides_[0]->Upload(to, from, bytes), sides_[1]->Upload(Second(to), from, bytes);
  }
  void Send(const SharedMemory& memory) {
    sides_[0]->Send(memory), sides_[1]->Send(ShowOnHost(memory.backend, memory.bytes));
  }
  // Copies the host memory of the first backend to that of the second, because an op being made may
  // read it before it is sent. Returns the second's memory.
  SharedMemory ShowOnHost(const void* place, std::size_t bytes) {
    const auto& [first, second] = BlockOf(place);
    const auto at = static_cast<const std::byte*>(place) - first.backend;
    std::memmove(second.host + at, first.host + at, bytes);
    return {second.backend + at, second.host + at, bytes};
  }
  // The same spec, tensor or slots with the second backend's addresses; null stays null.
  template <class Part>
  Part ForSecond(Part part) const {
    ForEachPointer(part, [&](auto*& pointer) { pointer = Second(pointer); });
    return part;
  }

  // The value at a place of one side (0, 1) after all work is done.
  template <class T>
  T Read(int side, const T* place) const {
    T value{};
    const T* from = side == 0 ? place : Second(place);
    sides_[side]->Synchronize();
    sides_[side]->Download(&value, reinterpret_cast<const std::byte*>(from), sizeof value);
    return value;
  }
  // Images of a tensor as fp32; of none there are none.
  std::vector<float> Values(int side, const Tensor& tensor, std::int64_t images) const {
    if (!tensor) return {};
    std::vector<float> values(static_cast<std::size_t>(images * tensor.shape.per_image()));
    sides_[side]->Synchronize();
    sides_[side]->Read(side == 0 ? tensor : ForSecond(tensor), images, values.data());
    return values;
  }
  // The second's bytes become the first's, if there are any.
  template <class T>
  void Copy(T* place, std::size_t bytes = sizeof(T)) {
    if (place == nullptr) return;
    std::vector<std::byte> from(bytes);
    for (Backend* side : sides_) side->Synchronize();
    sides_[0]->Download(from.data(), reinterpret_cast<const std::byte*>(place), bytes);
    sides_[1]->Upload(reinterpret_cast<std::byte*>(Second(place)), from.data(), bytes);
  }

 private:
  using Block = std::pair<SharedMemory, SharedMemory>;  // host: null where it is not shared
  const SharedMemory& Keep(const SharedMemory& first, const SharedMemory& second) {
    return (blocks_[first.backend] = {first, second}).first;
  }
  const Block& BlockOf(const void* place) const {
    const auto after = blocks_.upper_bound(static_cast<const std::byte*>(place));
    ADA_CHECK(after != blocks_.begin());
    return std::prev(after)->second;
  }
  template <class T>
  T* Second(T* pointer) const {
    if (pointer == nullptr) return nullptr;
    const auto& [first, second] = BlockOf(pointer);
    const auto at = reinterpret_cast<const std::byte*>(pointer) - first.backend;
    ADA_CHECK(static_cast<std::size_t>(at) < first.bytes);
    return reinterpret_cast<T*>(second.backend + at);
  }

  Backend* sides_[2];
  std::map<const std::byte*, Block> blocks_;  // by the first's address
};

}  // namespace ada::backend

namespace ada::backend::compare {

// State shared by all ops of one compare backend.
struct Comparison {
  const CompareOptions options;
  const std::unique_ptr<Backend> first, second;
  PairedMemory memory{*first, *second};
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};

// Tolerances of outputs by name (others must be equal), taken before the op overwrites operands.
using SumTolerances = std::map<std::string, SumTolerance>;
SumTolerances TolerancesOf(const Comparison&, const MatmulSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const BatchNormSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const AttentionSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const ClassLossSpec&, const Pass&);

class Checker {
 public:
  Checker(Comparison& all, const std::string& layer, const char* op, const char* phase)
      : all_(all), about_{++all.calls, layer, op, phase, {}, {}, 0, 0, {}} {}

  // Checks decisions and scales first, because values depend on them, then all else.
  void Check(const Outputs& outputs, const Pass& pass, SumTolerances sums = {});
  // `names`: "x,y,z". Number i may differ by allowed[i % size] + relative * |a[i]|.
  void Compare(const char* names, const Numbers& a, const Numbers& b, const Numbers& allowed = {0},
               double relative = 0);

 private:
  struct OutputValues;  // an output's values
  void CheckDecision(const Output& out, double bound);
  void CheckValues(const OutputValues& seen);
  void CheckStats(const OutputValues& seen, const TensorStats& a, const TensorStats& b);
  void CheckMoments(const OutputValues& seen, const TensorMoments& a, const TensorMoments& b);
  void CheckNotes(const OutputValues& seen, const Pass& pass);
  void CompareBins(const char* name, const Numbers& a, const Numbers& b, double allowed);
  // Calls check(a, b) with the values at a place, then overwrites the second with the first.
  void Both(auto* place, const auto& check) {
    if (place == nullptr) return;
    check(all_.memory.Read(0, place), all_.memory.Read(1, place));
    all_.memory.Copy(place);
  }
  void Report(const std::string& what, double first, double second, const std::string& allowed);

  Comparison& all_;
  Difference about_;
  bool reported_ = false;
};

}  // namespace ada::backend::compare
