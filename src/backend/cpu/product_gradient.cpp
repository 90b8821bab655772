// From the partial weight gradients of a product's groups to dw and db: sums in the order of
// groups, PyTorch's order of values, unscaled, rounded where they have a format of their own.
#include "backend/cpu/block_loop.h"
#include "backend/cpu/product_op.h"

namespace ada::backend::cpu {

void ProductOp::FinishWeightGradient(const Pass& pass, std::int64_t groups) {
  const Partial total = PartialOf(0);
  const auto values = static_cast<std::int64_t>(LayoutBytes(*gradient_layout_) / 4);
  ForSegments(context_, values, [&](std::int64_t first, std::int64_t n, std::int64_t, int) {
    for (std::int64_t g = 1; g < groups; ++g)
      context_.kernels.accumulate(PartialOf(g).dw + first, total.dw + first, n);
  });
  float* plain = PartialOf(8).dw;  // behind the partials
  FromLayout(geometry_, *gradient_layout_, total.dw, plain);
  StoreWeightGradient(pass, plain);
  if (!spec_.b) return;
  for (std::int64_t g = 1; g < groups; ++g)
    context_.kernels.accumulate(PartialOf(g).db, total.db, spec_.w.shape.n);
  StoreBiasGradient(pass, total.db);
}

// dw = round(gradient / S); of several micro-batches each sum is rounded.
void ProductOp::StoreWeightGradient(const Pass& pass, float* gradient) {
  const Kernels& kernels = context_.kernels;
  ForSegments(context_, spec_.w.shape.numel(),
              [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                float* from = gradient + first;
                const Piece dw{spec_.dw.f32() + first, Storage::kF32};
                if (spec_.reference && dw_notes_.rounds())
                  kernels.round(from, 1.0f, {from, Storage::kF32}, n, Quietly(spec_.dw_format));
                kernels.unscale(from, *spec_.dy.scale, pass.accumulate, spec_.dw.f32() + first, n);
                const Rounding rounding = dw_notes_.For(pass, segment);
                if (dw_notes_.rounds())
                  kernels.round(spec_.dw.f32() + first, 1.0f, dw, n, rounding);
                else if (dw_notes_.wanted())
                  kernels.inspect(dw, n, rounding);
              });
  dw_notes_.Finish(pass);
}

// db is fp32; under `reference` it is rounded where dw is.
void ProductOp::StoreBiasGradient(const Pass& pass, float* gradient) {
  const Rounding rounding = Quietly(spec_.reference ? spec_.dw_format : kFp32);
  const Piece from{gradient, Storage::kF32}, db{spec_.db.f32(), Storage::kF32};
  const std::int64_t n = spec_.w.shape.n;
  if (spec_.reference) context_.kernels.round(gradient, 1.0f, from, n, rounding);
  context_.kernels.unscale(gradient, *spec_.dy.scale, pass.accumulate, spec_.db.f32(), n);
  if (spec_.reference) context_.kernels.round(spec_.db.f32(), 1.0f, db, n, rounding);
}

}  // namespace ada::backend::cpu
