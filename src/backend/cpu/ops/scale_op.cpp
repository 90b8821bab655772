// The cast at a border between formats (`kind: scale`): values change their format on the way
// forward, gradients are multiplied by the layer's alpha on the way back.
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of a ScaleSpec, the cast of the paper. It has no weight, so that its rule looks at dy
// only.
class CpuScale final : public Op {
 public:
  CpuScale(const Context& context, const ScaleSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx),
        tail_(context) {
    ADA_CHECK(!spec.dx || spec.scaler != nullptr);
    const std::int64_t block = BlockImages(spec.x.shape) * spec.x.shape.per_image();
    // A worker holds a block of dy in fp32, for the tail or between the two roundings of
    // `reference`.
    if (spec.dx) context.scratch.Reserve(static_cast<std::size_t>(block) * sizeof(float), 0);
  }

  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                // A sum of one tensor is a copy that rounds to another format and counts.
                const TensorSpan in = At(spec_.x, image);
                context_.kernels.sum(&in, nullptr, 1, At(spec_.y, image), Values(n),
                                     y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }

  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    const float alpha = DecideAlpha(pass);
    ObserveTail(pass);
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const TensorSpan in = At(spec_.dy.tensor, image), out = At(spec_.dx.tensor, image);
                const Rounding rounding = dx_stats_.For(pass, block);
                // The authors multiply dy in its own format, which rounds, and cast the result
                // afterwards; otherwise alpha * dy is rounded once.
                if (!spec_.scaler->rule.reference)
                  return context_.kernels.sum(&in, &alpha, 1, out, Values(n), rounding);
                auto* scaled = reinterpret_cast<float*>(context_.scratch.worker(worker));
                context_.kernels.sum(&in, &alpha, 1, {scaled, Storage::kF32}, Values(n),
                                     RoundOnly(spec_.dy.tensor.format));
                context_.kernels.round(scaled, 1.0f, out, Values(n), rounding);
              });
    dx_stats_.Finish(pass);
  }

 private:
  std::int64_t Values(std::int64_t images) const { return images * spec_.x.shape.per_image(); }

  // Shows the rule what it needs to see of dy, decides, and sets the scale of dx.
  float DecideAlpha(const Pass& pass) {
    scaling::LayerScaler& scaler = *spec_.scaler;
    const scaling::Needs needs = scaling::NeedsOf(scaler);
    scaling::Observation seen;
    if (needs.moments) {
      ADA_CHECK(spec_.dy.moments != nullptr);
      seen.dy = MomentsOfAll(context_, *spec_.dy.moments, Values(pass.rows));
    }
    if (needs.logs) ObserveLogs(context_, spec_.dy.tensor, pass.rows, seen);
    scaling::Decide(scaler, seen, *spec_.dy.scale);
    *spec_.dx.scale = scaler.decision.scale_out;
    return scaler.decision.alpha;
  }

  // exact_range: of dy itself, which is what alpha multiplies.
  void ObserveTail(const Pass& pass) {
    if (!tail_.Begin(spec_.scaler)) return;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int worker) {
                auto* dy = reinterpret_cast<float*>(context_.scratch.worker(worker));
                context_.kernels.widen(At(spec_.dy.tensor, image), dy, Values(n));
                tail_.Add(context_.kernels, dy, Values(n), worker);
              });
    tail_.Finish(spec_.scaler);
  }

  Context context_;
  ScaleSpec spec_;
  RoundingStats y_stats_, dx_stats_;
  TailCounter tail_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ScaleSpec& s) {
  return std::make_unique<CpuScale>(c, s);
}

}  // namespace ada::backend::cpu
