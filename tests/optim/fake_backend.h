// A backend that can only allocate and update, for tests of the optimizer: the plainest loops over
// backend/update_rules.h.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/update_rules.h"

namespace ada::testing {

class FakeUpdate final : public backend::UpdateOp {
 public:
  FakeUpdate(const backend::UpdateRule& rule, std::vector<backend::UpdateSlot> slots,
             std::vector<backend::WatchedRounding> watched)
      : rule_(rule), slots_(std::move(slots)), watched_(std::move(watched)) {}

  void CheckWatched() override {
    for (const backend::WatchedRounding& w : watched_)
      if (std::isnan(w.stats->max_abs) || w.stats->max_abs > w.most) left_ = true;
  }
  void Plan(const backend::UpdatePlan& plan) override { plan_ = plan; }
  void Update() override {
    outcome_ = {};
    outcome_.watched = std::exchange(left_, false);
    outcome_.norm = Norm();
    outcome_.overflow = !std::isfinite(outcome_.norm);
    if (plan_.largest) outcome_.largest = Largest();
    const bool skips = plan_.on_overflow == backend::UpdatePlan::OnOverflow::kSkip;
    if (outcome_.watched || (outcome_.overflow && skips)) return;
    if (outcome_.overflow) Sanitize(plan_.sanitize_to);
    backend::UpdateStep step = plan_.step;
    step.gradient_factor = backend::ClipFactor(Norm(), plan_.clip_norm);
    Apply(step);
    outcome_.updated = true;
    outcome_.clipped = step.gradient_factor < 1;
  }
  backend::UpdateOutcome Outcome() override { return outcome_; }

 private:
  double Norm() const {
    double sum = 0;
    for (const backend::UpdateSlot& slot : slots_) {
      for (std::int64_t i = 0; i < slot.gradient.shape.numel(); ++i) {
        sum += static_cast<double>(slot.gradient.f32()[i]) * slot.gradient.f32()[i];
      }
    }
    return std::sqrt(sum);
  }

  float Largest() const {
    float largest = 0;
    for (const backend::UpdateSlot& slot : slots_) {
      for (std::int64_t i = 0; i < slot.gradient.shape.numel(); ++i) {
        const float magnitude = std::fabs(slot.gradient.f32()[i]);
        if (std::isnan(magnitude)) return magnitude;
        largest = std::max(largest, magnitude);
      }
    }
    return largest;
  }
  void Sanitize(float largest) {
    for (const backend::UpdateSlot& slot : slots_) {
      for (std::int64_t i = 0; i < slot.gradient.shape.numel(); ++i) {
        float& x = slot.gradient.f32()[i];
        x = std::isnan(x) ? 0 : std::clamp(x, -largest, largest);
      }
    }
  }

  void Apply(const backend::UpdateStep& step) {
    for (const backend::UpdateSlot& slot : slots_) {
      const backend::UpdateScalars s = backend::MakeUpdateScalars(rule_, step, slot.lr, slot.decay);
      for (std::int64_t i = 0; i < slot.value.shape.numel(); ++i) {
        float& value = slot.value.f32()[i];
        const float gradient = slot.gradient.f32()[i];
        if (slot.state2) {
          value =
              backend::AdamUpdate(s, value, gradient, slot.state1.f32()[i], slot.state2.f32()[i]);
        } else if (slot.state1) {
          value = backend::SgdMomentumUpdate(s, value, gradient, slot.state1.f32()[i]);
        } else {
          value = backend::SgdUpdate(s, value, gradient);
        }
      }
    }
  }

  backend::UpdateRule rule_;
  std::vector<backend::UpdateSlot> slots_;
  std::vector<backend::WatchedRounding> watched_;
  bool left_ = false;
  backend::UpdatePlan plan_;
  backend::UpdateOutcome outcome_;
};

class FakeBackend final : public backend::Backend {
 public:
  std::string Describe() const override { return "fake"; }
  std::string InstructionSet() const override { return "none"; }
  std::byte* Allocate(std::size_t bytes) override {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    allocated_ += bytes;
    return memory_.back().get();
  }
  std::size_t allocated_bytes() const override { return allocated_; }
  void Upload(std::byte* to, const void* from, std::size_t n) override { std::memcpy(to, from, n); }
  void Download(void* to, const std::byte* from, std::size_t n) override {
    std::memcpy(to, from, n);
  }
  void Synchronize() override {}
  void Read(const Tensor&, std::int64_t, float*) override {
    FAIL("the optimizer reads no tensors");
  }
  std::unique_ptr<backend::UpdateOp> MakeUpdate(
      const backend::UpdateRule& rule, std::vector<backend::UpdateSlot> slots,
      std::vector<backend::WatchedRounding> watched) override {
    return std::make_unique<FakeUpdate>(rule, std::move(slots), std::move(watched));
  }
  std::unique_ptr<backend::AverageOp> MakeAverage(std::vector<backend::AverageSlot>) override {
    return nullptr;
  }

  // An fp32 tensor [n] with these values.
  Tensor Make(const std::vector<float>& values) {
    Tensor tensor;
    tensor.shape = {static_cast<std::int64_t>(values.size()), 1, 1, 1};
    tensor.data = Allocate(tensor.bytes());
    Upload(tensor.data, values.data(), tensor.bytes());
    return tensor;
  }

  int BlockImages(const Shape&) const override { return Missing<int>(); }
  std::unique_ptr<backend::InputOp> MakeInput(const backend::InputSpec&) override {
    return Missing<std::unique_ptr<backend::InputOp>>();
  }
  std::unique_ptr<backend::Op> Make(const backend::OpSpec&) override {
    return Missing<std::unique_ptr<backend::Op>>();
  }
  std::unique_ptr<backend::LossOp> MakeLoss(const backend::LossSpec&) override {
    return Missing<std::unique_ptr<backend::LossOp>>();
  }

 private:
  template <typename T>
  static T Missing() {
    throw std::logic_error("the fake backend has no such op");
  }
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::size_t allocated_ = 0;
};

}  // namespace ada::testing
