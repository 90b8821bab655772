// The op of all layers whose values are made one by one (backend/values/layer_values.h).
#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <variant>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/moved_values.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"
#include "backend/cpu/value_kernels.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

template <class Spec>
class CpuValueOp final : public Op {
  using Layer = LayerValues<Spec>;

 public:
  CpuValueOp(const Context& context, const Spec& spec)
      : context_(context),
        kernels_(std::get<FillKernels<Spec>>(ValueKernelsOf(context.kernels))),
        spec_(spec),
        y_stats_(spec.y, StyleOfY(spec), StatsOfY(spec)),
        dx_stats_(spec.dx) {
    ADA_CHECK(MovesWithinFormats(spec));
    Reserve<MakerOfY<Spec>>(spec.x.shape, spec.y.shape);
    if (spec.dx) Reserve<MakerOfDx<Spec>>(spec.y.shape, spec.x.shape);
    if constexpr (HasSum<Spec>) {
      context.scratch.Reserve(2 * BlockValues(spec.x.shape) * sizeof(float), 0);
      if (spec.dw) totals_ = StripTotals(context, spec.x.shape);
    }
  }
  void Forward(const Pass& pass) override {
    if constexpr (requires { spec_.rate; })
      if (Copies(spec_, pass)) {
        const std::int64_t values = pass.rows * spec_.x.shape.per_image();
        std::memcpy(spec_.y.data, spec_.x.data,
                    static_cast<std::size_t>(values) * BytesOf(spec_.x.storage));
        return;
      }
    const auto maker = Layer::Y(spec_, pass);
    if constexpr (Moves<MakerOfY<Spec>>())
      MoveTensor(context_, pass, maker, spec_.x, spec_.y);
    else
      Make(pass, maker, kernels_.y, spec_.x, spec_.y, y_stats_);
  }
  void Backward(const Pass& pass) override {
    if constexpr (HasSum<Spec>)
      if (spec_.dw) SumTerms(pass);
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const auto maker = Layer::Dx(spec_);
    if constexpr (Moves<MakerOfDx<Spec>>()) {
      MoveTensor(context_, pass, maker, spec_.dy.tensor, spec_.dx.tensor);
      InspectExact(context_, spec_.dx, dx_stats_, pass);
    } else {
      Make(pass, maker, kernels_.dx, spec_.dy.tensor, spec_.dx.tensor, dx_stats_);
    }
  }

 private:
  template <class Maker>
  static constexpr bool InPlace() {
    return Maker::kMakes == Makes::kEach || Maker::kMakes == Makes::kRuns;
  }
  // In the worker's memory: a block of the output, in place of the first input, and one of the
  // second; or a block of the output and an image of the input.
  template <class Maker>
  void Reserve(const Shape& in, const Shape& out) const {
    if (Moves<Maker>()) return;
    const std::size_t block = BlockValues(out), image = static_cast<std::size_t>(in.per_image());
    const std::size_t more = InPlace<Maker>() ? (InputsOf<Maker>() - 1) * block : image;
    context_.scratch.Reserve((block + more) * sizeof(float), 0);
  }

  template <class Maker>
  void Make(const Pass& pass, const Maker& maker, FillKernel<Maker> fill, const Tensor& in,
            const Tensor& out, RoundingStats& stats) {
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const FillArgs a = Block(pass, maker, image, n, in, out.shape, worker);
                if constexpr (InPlace<Maker>())
                  fill(maker, a);
                else
                  FillImages(maker, fill, in, out.shape, n, a);
                context_.kernels.round(a.out, 1.0f, At(out, image), a.values,
                                       stats.For(pass, block));
              });
    stats.Finish(pass);
  }
  // A block's part of the worker's memory, with what the maker reads in place.
  template <class Maker>
  FillArgs Block(const Pass& pass, const Maker& maker, std::int64_t image, std::int64_t n,
                 const Tensor& in, const Shape& shape, int worker) const {
    FillArgs a;
    a.image = image, a.images = n, a.values = n * shape.per_image();
    a.random = {pass.seed ^ StreamOf(maker), pass.draw, pass.first_row};
    if constexpr (!InPlace<Maker>()) {
      a.out = reinterpret_cast<float*>(context_.scratch.worker(worker));
      return a;
    }
    a.out = WidenedBlock(context_, in, shape, image, a.values, worker, 0);
    if constexpr (IsRandom<Maker>()) {
      float* numbers = a.out + BlockValues(shape);
      context_.kernels.uniform(a.random.key, a.random.draw,
                               (pass.first_row + image) * shape.per_image(), a.values, numbers);
      a.second = numbers;
    } else if constexpr (InputsOf<Maker>() == 2) {
      a.second = WidenedBlock(context_, spec_.x, shape, image, a.values, worker, 1);
    }
    return a;
  }
  template <class Maker>
  void FillImages(const Maker& maker, FillKernel<Maker> fill, const Tensor& in, const Shape& shape,
                  std::int64_t n, const FillArgs& block) const {
    float* input = block.out + BlockValues(shape);
    FillArgs a = block;
    a.images = 1, a.input = input, a.input_values = in.shape.per_image();
    for (std::int64_t i = 0; i < n; ++i, ++a.image, a.out += shape.per_image()) {
      context_.kernels.widen(At(in, a.image), input, a.input_values);
      fill(maker, a);
    }
  }

  void SumTerms(const Pass& pass) {
    const auto term = Layer::Dw(spec_);
    const Shape& shape = spec_.x.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int worker) {
                const FillArgs a = Block(pass, term, image, n, spec_.dy.tensor, shape, worker);
                kernels_.dw(term, a);
                totals_.Add(context_, a.out, nullptr, image, n);
              });
    if (SumsByChannel(spec_))
      totals_.Unscaled(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
    else
      totals_.UnscaledOfAll(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
  }

  Context context_;
  const FillKernels<Spec>& kernels_;
  Spec spec_;
  RoundingStats y_stats_, dx_stats_;
  StripTotals totals_;  // with dw
};

}  // namespace

std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec) {
  return std::visit(
      [&](const auto& s) -> std::unique_ptr<Op> {
        using Spec = std::decay_t<decltype(s)>;
        if constexpr (HasValues<Spec>)
          return std::make_unique<CpuValueOp<Spec>>(context, s);
        else
          return nullptr;
      },
      spec);
}

}  // namespace ada::backend::cpu
