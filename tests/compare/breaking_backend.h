// A CPU backend with a mistake in one place: what the compare backend has to find.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "backend/cpu/cpu_backend.h"
#include "backend/passing_backend.h"

namespace ada::backend::test {

// What goes wrong: after `phase` of an op of this layer, `damage` is done to its spec's tensors.
struct Mistake {
  std::string layer;
  bool backward = false;
  std::function<void(const OpSpec& spec)> damage;
};

class DamagedOp final : public Op {
 public:
  DamagedOp(std::unique_ptr<Op> op, const OpSpec& spec, const Mistake& mistake)
      : op_(std::move(op)), spec_(spec), mistake_(mistake) {}
  void Forward(const Pass& pass) override {
    op_->Forward(pass);
    if (!mistake_.backward) mistake_.damage(spec_);
  }
  void Backward(const Pass& pass) override {
    op_->Backward(pass);
    if (mistake_.backward) mistake_.damage(spec_);
  }
  void RefreshWeights(const Pass& pass) override { op_->RefreshWeights(pass); }

 private:
  std::unique_ptr<Op> op_;
  const OpSpec spec_;
  const Mistake& mistake_;
};

class BreakingBackend final : public PassingBackend {
 public:
  explicit BreakingBackend(Mistake mistake)
      : PassingBackend(cpu::MakeCpuBackend(1)), mistake_(std::move(mistake)) {}

  std::string Describe() const override { return "broken"; }
  std::unique_ptr<Op> Make(const OpSpec& spec) override {
    std::unique_ptr<Op> op = inner().Make(spec);
    const std::string& layer =
        std::visit([](const auto& s) -> const std::string& { return s.layer; }, spec);
    if (!op || layer != mistake_.layer) return op;
    return std::make_unique<DamagedOp>(std::move(op), spec, mistake_);
  }

 private:
  const Mistake mistake_;
};

}  // namespace ada::backend::test
