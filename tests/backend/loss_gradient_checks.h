// The gradients of losses on any backend against finite differences of their own forward pass.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/finite_differences.h"
#include "backend/op_bench.h"

namespace ada::backend::test {

// Bench and `most` as in GradientChecks.
template <class Bench>
class LossGradientChecks {
 public:
  LossGradientChecks(Bench& bench, std::size_t most) : bench_(bench), most_(most) {}

  void Loss(float smoothing) {
    CAPTURE(smoothing);
    ClassLossSpec spec;
    const Shape shape{5, 1, 1, 10};
    spec.logits = bench_.Make(shape, kFp32, Random(shape, 1)), spec.label_smoothing = smoothing;
    spec.dlogits = bench_.MakeGradient(shape, kFp32);
    const auto op = bench_->MakeLoss(spec);
    const std::int32_t labels[] = {3, 0, 9, 3, 5};
    op->SetTargets({labels}, 5);
    Pass pass = MakePass(5);
    pass.loss_scale = 32, pass.loss_terms = 20;
    op->Forward(pass);
    op->Backward(pass);
    const auto loss = [&] {
      op->Forward(pass);
      return op->Result().loss_sum;  // the gradient is of a mean of 20
    };
    const Differences<Bench> by = {bench_, loss, most_};
    by.Check("logits", spec.logits, spec.dlogits.tensor, bench_.Fetched(spec.dlogits.scale) / 20);
  }

  void PixelLoss() {
    PixelLossSpec spec;
    const Shape shape{3, 4, 5, 7};
    spec.logits = bench_.Make(shape, kFp32, Random(shape, 1));
    spec.class_weights = {0.5f, 2, 1, 0, 1.5f, 3, 0.25f};
    spec.dlogits = bench_.MakeGradient(shape, kFp32);
    const auto op = bench_->MakeLoss(spec);
    std::vector<std::int32_t> labels;
    for (int i = 0; i < 60; ++i) labels.push_back(i * 5 % 8 - 1);
    op->SetTargets({labels.data()}, 3);
    const auto by = LossStep(*op, 3, 16);
    by.Check("logits", spec.logits, spec.dlogits.tensor, bench_.Fetched(spec.dlogits.scale) / 16);
  }

  // Scores so far apart that no step changes which negatives are hard; differences away from 1.
  void MultiboxLoss() {
    MultiboxLossSpec spec;
    const Shape four{2, 1, 30, 4}, scores{2, 1, 30, 5};
    Values locations(240), targets(240);
    for (std::size_t i = 0; i < 240; ++i)
      locations[i] = 0.125f * static_cast<float>(i % 29) - 1.8125f;
    spec.locations = bench_.Make(four, kFp32, locations);
    spec.scores = bench_.Make(scores, kFp32, Apart(scores));
    spec.dlocations = bench_.MakeGradient(four, kFp32);
    spec.dscores = bench_.MakeGradient(scores, kFp32);
    const auto op = bench_->MakeLoss(spec);
    std::vector<std::int32_t> labels;
    for (int i = 0; i < 60; ++i) labels.push_back(i % 7 == 3 ? 1 + i % 4 : i % 11 == 10 ? -1 : 0);
    Targets all{labels.data()};
    all.locations = targets.data();
    op->SetTargets(all, 2);
    const auto by = LossStep(*op, 2, 8);
    by.Check("locations", spec.locations, spec.dlocations.tensor,
             bench_.Fetched(spec.dlocations.scale) / 8);
    by.Check("scores", spec.scores, spec.dscores.tensor, bench_.Fetched(spec.dscores.scale) / 8);
  }

 private:
  // A step of a loss over `terms`, whose gradient is then checked by the forward pass alone.
  Differences<Bench> LossStep(LossOp& op, int rows, std::int64_t terms) {
    Pass pass = MakePass(rows);
    pass.loss_scale = 32, pass.loss_terms = terms;
    op.Forward(pass);
    op.Backward(pass);
    return {bench_,
            [&op, pass] {
              op.Forward(pass);
              return op.Result().loss_sum;
            },
            most_};
  }

  Bench& bench_;
  std::size_t most_;
};

}  // namespace ada::backend::test
