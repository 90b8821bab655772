// One op on two backends: both run on the same inputs, what they wrote is compared, and the second
// goes on with the first's.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/compare/checker.h"

namespace ada::backend::compare {

// What all ops of one compare backend share.
struct Comparison {
  AddressMap& addresses;
  double slack;
  Checker::Report report;
  bool fp8_sums = false;
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};
// One op as each backend has made it; `op`: its kind, for messages.
template <class OpType>
struct OpPair {
  std::string layer, op;
  std::unique_ptr<OpType> first, second;
};

// Base of all compared ops: the calls, and who they belong to.
template <class OpType>
class ComparedOp : public OpType {
 public:
  ComparedOp(Comparison& comparison, OpPair<OpType> pair)
      : comparison_(comparison), pair_(std::move(pair)) {}

  void Forward(const Pass& pass) override {
    Call("forward", pass, [&](OpType& op) { op.Forward(pass); });
  }
  void Backward(const Pass& pass) override {
    Call("backward", pass, [&](OpType& op) { op.Backward(pass); });
  }
  void RefreshWeights(const Pass& pass) override {
    Call("refresh weights", pass, [&](OpType& op) { op.RefreshWeights(pass); });
  }

 protected:
  // Before a call, where an op writes over what its results are judged by.
  virtual void Before(const std::string& /*phase*/, const Pass& /*pass*/) {}
  virtual void Check(const std::string& phase, const Pass& pass, Checker& checker) = 0;

  Checker MakeChecker(const std::string& phase) {
    Difference about;
    about.call = ++comparison_.calls;
    about.layer = pair_.layer, about.op = pair_.op, about.phase = phase;
    return Checker(comparison_.addresses, about, comparison_.slack, comparison_.report);
  }
  OpType& first() const { return *pair_.first; }
  OpType& second() const { return *pair_.second; }
  Comparison& comparison() const { return comparison_; }

 private:
  template <class Body>
  void Call(const std::string& phase, const Pass& pass, Body&& body) {
    Before(phase, pass);
    const std::uint64_t variant = Variant(phase, pass);
    comparison_.addresses.first().Run(variant, pass, [&] { body(first()); });
    comparison_.addresses.second().Run(variant, pass, [&] { body(second()); });
    Checker checker = MakeChecker(phase);
    Check(phase, pass, checker);
  }
  // One for all passes that differ in values alone (Backend::Run).
  std::uint64_t Variant(const std::string& phase, const Pass& pass) {
    const auto key =
        std::make_tuple(phase, pass.rows, pass.training, pass.count, pass.accumulate, pass.bins);
    const auto [place, is_new] = variants_.try_emplace(key, comparison_.variants + 1);
    if (is_new) ++comparison_.variants;
    return place->second;
  }

  Comparison& comparison_;
  const OpPair<OpType> pair_;
  std::map<std::tuple<std::string, int, bool, bool, bool, bool>, std::uint64_t> variants_;
};

// Ops without sums whose order is free: all that they write is equal.
class ExactOp final : public ComparedOp<Op> {
 public:
  using ComparedOp::ComparedOp;
  std::vector<Output> forward, backward;
  const scaling::LayerScaler* scaler = nullptr;
  const scaling::ScaleDecision* decision = nullptr;

 private:
  void Check(const std::string& phase, const Pass& pass, Checker& checker) override;
};
template <class Spec>
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const Spec& spec) {
  auto op = std::make_unique<ExactOp>(comparison, std::move(pair));
  if constexpr (requires { spec.y_style; }) {
    op->forward = {OutputOf("y", spec.y, spec.y_style, spec.y_stats)};
  } else if constexpr (requires { spec.y; }) {
    op->forward = {OutputOf("y", spec.y)};
  }
  if constexpr (requires { spec.dx.begin(); }) {
    for (const Gradient& dx : spec.dx)
      if (dx) op->backward.push_back(OutputOf("dx", dx));
  } else if constexpr (requires { spec.dx; }) {
    if (spec.dx) op->backward = {OutputOf("dx", spec.dx)};
  }
  // Sums whose order is fixed.
  if constexpr (requires { spec.dw; })
    if (spec.dw) {
      Output dw = ParameterOf("dw", spec.dw);
      if constexpr (requires { spec.dw_stats; })
        dw.format = spec.dw_format, dw.style = spec.dw_style, dw.stats = spec.dw_stats;
      op->backward.push_back(dw);
    }
  if constexpr (requires { spec.dgamma; })
    if (spec.dgamma) {
      op->backward.push_back(ParameterOf("dgamma", spec.dgamma));
      if (spec.dbeta) op->backward.push_back(ParameterOf("dbeta", spec.dbeta));
    }
  if constexpr (requires { spec.sum; }) op->backward = {OutputOf("sum", spec.sum)};
  if constexpr (requires { spec.scaler; }) op->scaler = spec.scaler;
  if constexpr (requires { spec.decision; }) op->decision = spec.decision;
  return op;
}

// Those with such sums.
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const Conv2dSpec& spec);
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair,
                              const ConvTranspose2dSpec& spec);
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const LinearSpec& spec);
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const BatchNormSpec& spec);
std::unique_ptr<Op> CompareOp(Comparison& comparison, OpPair<Op> pair, const AttentionSpec& spec);
std::unique_ptr<InputOp> CompareOp(Comparison& comparison, OpPair<InputOp> pair,
                                   const InputSpec& spec);
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const ClassLossSpec& spec);
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const PixelLossSpec& spec);
std::unique_ptr<LossOp> CompareOp(Comparison& comparison, OpPair<LossOp> pair,
                                  const MultiboxLossSpec& spec);
std::unique_ptr<UpdateOp> CompareUpdate(Comparison& comparison, std::unique_ptr<UpdateOp> first,
                                        std::unique_ptr<UpdateOp> second, const UpdateRule& rule,
                                        std::vector<UpdateSlot> slots);
std::unique_ptr<AverageOp> CompareAverage(Comparison& comparison, std::unique_ptr<AverageOp> first,
                                          std::unique_ptr<AverageOp> second,
                                          std::vector<AverageSlot> slots);

}  // namespace ada::backend::compare
