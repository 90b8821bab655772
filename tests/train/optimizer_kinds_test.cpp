// Every kind of optimizer with every way to keep masters and states: the same bytes for any number
// of threads, counted or not, and after a resume.
#include <doctest/doctest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "optim/optimizer.h"
#include "optim/states.h"
#include "step/specs.h"

namespace ada::run {
namespace {

using Kind = backend::UpdateRule::Kind;

constexpr Kind kKinds[] = {Kind::kSgd,      Kind::kAdam,      Kind::kAdamW,        Kind::kLion,
                           Kind::kRmsprop,  Kind::kNadam,     Kind::kRadam,        Kind::kAdagrad,
                           Kind::kAdamax,   Kind::kAdafactor, Kind::kScheduleFree, Kind::kAdopt,
                           Kind::kAdemamix, Kind::kLamb,      Kind::kStableAdamW,  Kind::kMuon};

// A matrix of several segments and a vector of odd length.
struct Kept {
  explicit Kept(const config::OptimizerConfig& optimizer, const config::PrecisionConfig& precision,
                int threads)
      : backend(backend::cpu::MakeCpuBackend(threads)) {
    const std::vector<std::vector<std::int64_t>> shapes = {{160, 256}, {1003}};
    std::vector<optim::OptimizedParameter> parameters;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      optim::OptimizedParameter parameter;
      parameter.name = i == 0 ? "w" : "b", parameter.dims = shapes[i];
      parameter.other = optimizer.kind == Kind::kMuon && i == 1;
      std::int64_t numel = 1;
      for (const std::int64_t dim : shapes[i]) numel *= dim;
      for (Tensor* tensor : {&parameter.value, &parameter.gradient}) {
        tensor->shape = {numel, 1, 1, 1};
        tensor->data = backend->Allocate(tensor->bytes());
      }
      for (std::int64_t k = 0; k < numel; ++k)
        parameter.value.f32()[k] = 0.1f * static_cast<float>((k * 37 + 11) % 101 - 50) / 50;
      parameters.push_back(parameter);
    }
    made = parameters;
    owner.emplace(*backend, step::UpdateRuleOf(optimizer, precision), parameters, 1.0);
    owner->RoundMasters();
  }
  void Step(std::int64_t step, bool count) {
    for (const optim::OptimizedParameter& p : made)
      for (std::int64_t k = 0; k < p.gradient.shape.numel(); ++k)
        p.gradient.f32()[k] = std::ldexp(static_cast<float>((k * 53 + step * 29) % 97 - 48),
                                         -8 - static_cast<int>(k % 13));
    backend::UpdatePlan plan;
    plan.step.lr = 1e-2, plan.step.seed = 3, plan.count = count;
    owner->Update(plan);
    CHECK(owner->Outcome().updated);
  }
  std::vector<Tensor> All() const {
    std::vector<Tensor> all;
    for (const optim::OptimizedParameter& p : made) all.push_back(p.value);
    for (const optim::StateTensor& state : owner->state()) all.push_back(state.tensor);
    return all;
  }
  void CheckEqual(const Kept& other) const {
    const std::vector<Tensor> mine = All(), theirs = other.All();
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i)
      CHECK(std::memcmp(mine[i].data, theirs[i].data, mine[i].bytes()) == 0);
  }

  std::unique_ptr<backend::Backend> backend;
  std::vector<optim::OptimizedParameter> made;
  std::optional<optim::Optimizer> owner;
};

void Check(const config::OptimizerConfig& optimizer, const config::PrecisionConfig& precision) {
  Kept one(optimizer, precision, 1), three(optimizer, precision, 3),
      resumed(optimizer, precision, 2);
  for (std::int64_t step = 1; step <= 4; ++step) {
    one.Step(step, true), three.Step(step, step % 2 == 0);
    if (step == 2) {
      const std::vector<Tensor> from = one.All(), to = resumed.All();
      for (std::size_t i = 0; i < to.size(); ++i)
        std::memcpy(to[i].data, from[i].data, to[i].bytes());
      resumed.owner->set_updates(2);
    }
    if (step > 2) resumed.Step(step, false);
  }
  one.CheckEqual(three);
  one.CheckEqual(resumed);
}

config::OptimizerConfig OptimizerOf(Kind kind) {
  config::OptimizerConfig optimizer;
  optimizer.kind = kind, optimizer.lr = 1e-2, optimizer.weight_decay = 0.01;
  if (kind == Kind::kSgd || kind == Kind::kRmsprop || kind == Kind::kMuon) optimizer.momentum = 0.9;
  if (kind == Kind::kRmsprop) optimizer.centered = true;
  return optimizer;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("kinds of optimizers: threads, counts and a resume change no byte") {
    for (const Kind kind : kKinds) {
      CAPTURE(static_cast<int>(kind));
      Check(OptimizerOf(kind), {});
      config::PrecisionConfig precision;
      precision.masters.format = kBf16;
      precision.masters.rounding = config::RoundingKind::kStochastic;
      Check(OptimizerOf(kind), precision);
    }
    config::OptimizerConfig amsgrad = OptimizerOf(Kind::kAdamW);
    amsgrad.amsgrad = true;
    Check(amsgrad, {});
  }

  TEST_CASE("layouts of states and compensations of masters: likewise") {
    for (const Kind kind : kKinds) {
      if (kind == Kind::kAdafactor) continue;
      CAPTURE(static_cast<int>(kind));
      for (const char* layout : {"torchao_8bit", "torchao_4bit", "torchao_fp8", "bitsandbytes_8bit",
                                 "te_fp16", "te_fp8"}) {
        CAPTURE(layout);
        config::PrecisionConfig precision;
        precision.optimizer_state.layout = layout;
        Check(OptimizerOf(kind), precision);
      }
      config::PrecisionConfig torch;
      torch.masters.format = torch.optimizer_state.format = kBf16;
      Check(OptimizerOf(kind), torch);
      config::PrecisionConfig remainder;
      remainder.masters.format = kBf16;
      remainder.masters.compensation = backend::UpdateRule::Compensation::kRemainder;
      Check(OptimizerOf(kind), remainder);
    }
    for (const Kind kind : {Kind::kSgd, Kind::kAdamW, Kind::kLion}) {
      config::PrecisionConfig kahan;
      kahan.masters.format = kahan.optimizer_state.format = kBf16;
      kahan.masters.compensation = backend::UpdateRule::Compensation::kKahan;
      Check(OptimizerOf(kind), kahan);
    }
  }

  TEST_CASE("a remainder loses nothing: the joined master is that of an update in fp32") {
    config::PrecisionConfig remainder;
    remainder.masters.format = kBf16;
    remainder.masters.compensation = backend::UpdateRule::Compensation::kRemainder;
    Kept kept(OptimizerOf(Kind::kAdamW), remainder, 1), wide(OptimizerOf(Kind::kAdamW), {}, 1);
    for (std::size_t i = 0; i < wide.made.size(); ++i)  // both start from bf16
      std::memcpy(wide.made[i].value.data, kept.made[i].value.data, kept.made[i].value.bytes());
    for (std::int64_t step = 1; step <= 3; ++step) kept.Step(step, false), wide.Step(step, false);
    const backend::UpdateSlot& slot = kept.owner->slots()[0];
    for (std::int64_t k = 0; k < slot.value.shape.numel(); ++k) {
      std::uint32_t high = 0, want = 0;
      std::memcpy(&high, slot.value.f32() + k, 4),
          std::memcpy(&want, wide.made[0].value.f32() + k, 4);
      const auto low =
          static_cast<std::uint32_t>(static_cast<std::int32_t>(slot.rest.f32()[k])) & 0xffffu;
      REQUIRE((((high >> 16) - (low >> 15)) << 16 | low) == want);
    }
  }

  TEST_CASE("the bytes of states, as they would be stored and as they are") {
    config::PrecisionConfig precision;
    config::OptimizerConfig adamw = OptimizerOf(Kind::kAdamW);
    CHECK(optim::StateBytes(step::UpdateRuleOf(adamw, precision), {64, 64}, false) == 2 * 4 * 4096);
    precision.optimizer_state.layout = "torchao_8bit";
    CHECK(optim::StateBytes(step::UpdateRuleOf(adamw, precision), {64, 64}, false) ==
          2 * (4096 + 16 * 4));
    precision.optimizer_state.layout = "torchao_4bit";
    CHECK(optim::StateBytes(step::UpdateRuleOf(adamw, precision), {64, 64}, false) ==
          2 * (2048 + 32 * 4));
    CHECK(optim::StateBytes(step::UpdateRuleOf(adamw, precision), {100}, false) == 2 * 4 * 100);
    CHECK(optim::StateMemory(step::UpdateRuleOf(adamw, precision), {64, 64}, false) ==
          2 * 4 * (4096 + 32));
    CHECK(optim::StateBytes(step::UpdateRuleOf(OptimizerOf(Kind::kAdafactor), {}), {24, 10},
                            false) == 4 * (24 + 10));
  }
}

}  // namespace ada::run
