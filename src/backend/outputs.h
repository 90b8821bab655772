// All that an op writes in a call, according to its spec, for code that checks it. A new kind of
// layer needs nothing here if its spec's members have the usual names.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ada::backend {

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
inline Outputs KeptBy(const UpdateRule& rule, const std::vector<UpdateSlot>& slots) {
  Outputs all;
  for (const UpdateSlot& slot : slots) {
    AddParameter(all, "value", slot.value, rule.masters.format);
    AddParameter(all, "state1", slot.state1, rule.state.format);
    AddParameter(all, "state2", slot.state2, rule.state.format);
  }
  return all;
}
inline Outputs KeptBy(const std::vector<AverageSlot>& slots) {
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

}  // namespace ada::backend
