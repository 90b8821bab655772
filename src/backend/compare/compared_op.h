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
struct Session {
  AddressMap& mirror;
  double slack;
  Checker::Report report;
  bool fp8_sums = false;
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};
struct Name {
  std::string layer, op;
};

// Base of all compared ops: the calls, and who they belong to.
template <class OpType>
class ComparedOp : public OpType {
 public:
  ComparedOp(Session& session, Name name, std::unique_ptr<OpType> first,
             std::unique_ptr<OpType> second)
      : session_(session),
        name_(std::move(name)),
        first_(std::move(first)),
        second_(std::move(second)) {}

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
    about.call = ++session_.calls;
    about.layer = name_.layer, about.op = name_.op, about.phase = phase;
    return Checker(session_.mirror, about, session_.slack, session_.report);
  }
  OpType& first() const { return *first_; }
  OpType& second() const { return *second_; }
  Session& session() const { return session_; }

 private:
  template <class Body>
  void Call(const std::string& phase, const Pass& pass, Body&& body) {
    Before(phase, pass);
    const std::uint64_t variant = Variant(phase, pass);
    session_.mirror.first().Run(variant, pass, [&] { body(*first_); });
    session_.mirror.second().Run(variant, pass, [&] { body(*second_); });
    Checker checker = MakeChecker(phase);
    Check(phase, pass, checker);
  }
  // One for all passes that differ in values alone (Backend::Run).
  std::uint64_t Variant(const std::string& phase, const Pass& pass) {
    const auto key =
        std::make_tuple(phase, pass.rows, pass.training, pass.count, pass.accumulate, pass.bins);
    const auto [place, is_new] = variants_.try_emplace(key, session_.variants + 1);
    if (is_new) ++session_.variants;
    return place->second;
  }

  Session& session_;
  Name name_;
  std::unique_ptr<OpType> first_, second_;
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

std::unique_ptr<Op> CompareProduct(Session& session, Name name, std::unique_ptr<Op> first,
                                   std::unique_ptr<Op> second, const Conv2dSpec& spec);
std::unique_ptr<Op> CompareProduct(Session& session, Name name, std::unique_ptr<Op> first,
                                   std::unique_ptr<Op> second, const LinearSpec& spec);
std::unique_ptr<Op> CompareBatchNorm(Session& session, Name name, std::unique_ptr<Op> first,
                                     std::unique_ptr<Op> second, const BatchNormSpec& spec);
std::unique_ptr<InputOp> CompareInput(Session& session, std::unique_ptr<InputOp> first,
                                      std::unique_ptr<InputOp> second, const InputSpec& spec);
std::unique_ptr<LossOp> CompareLoss(Session& session, std::unique_ptr<LossOp> first,
                                    std::unique_ptr<LossOp> second, const LossSpec& spec);
std::unique_ptr<UpdateOp> CompareUpdate(Session& session, std::unique_ptr<UpdateOp> first,
                                        std::unique_ptr<UpdateOp> second, const UpdateRule& rule,
                                        std::vector<UpdateSlot> slots);

}  // namespace ada::backend::compare
