// The op of all layers whose values are made one by one (backend/values/layer_values.h).
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/moved_values.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"
#include "backend/cpu/value_kernels.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of one kind of layer of values/. Loops, rounding and counting are here, the formula is the
// maker's: kernels compiled for each instruction set (value_kernels.h) fill fp32 blocks, which are
// rounded as a whole. What a maker only moves is moved as it is stored.
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
    std::size_t values = Needs<MakerOfY<Spec>>(spec.x.shape, spec.y.shape);
    if (spec.dx) values = std::max(values, Needs<MakerOfDx<Spec>>(spec.y.shape, spec.x.shape));
    if constexpr (HasTable<Spec>) {
      table_ = Layer::Table(spec);
      context.scratch.CountOwn(static_cast<std::ptrdiff_t>(table_.size() * sizeof(float)));
    }
    if constexpr (HasSum<Spec>)
      if (spec.dw) {
        values = std::max(values, BlockValues(spec.x.shape) + kPart);
        totals_ = StripTotals(context, spec.x.shape);
      }
    y_table_ = TableFor(YOf(spec, Pass{}, table_.data()), kernels_.y);
    if (spec.dx) dx_table_ = TableFor(DxOf(spec, table_.data()), kernels_.dx);
    context.scratch.Reserve(values * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    // Dropout in evaluation is a copy of the bytes where no format changes, and is not counted.
    if constexpr (requires { spec_.rate; })
      if (Copies(spec_, pass)) {
        const std::int64_t values = pass.rows * spec_.x.shape.per_image();
        std::memcpy(spec_.y.data, spec_.x.data,
                    static_cast<std::size_t>(values) * BytesOf(spec_.x.storage));
        return;
      }
    const auto maker = YOf(spec_, pass, table_.data());
    if constexpr (Moves<MakerOfY<Spec>>())
      MoveTensor(context_, pass, maker, spec_.x, spec_.y);
    else
      Make(pass, maker, kernels_.y, spec_.x, spec_.y, y_stats_);
  }
  void Backward(const Pass& pass) override {
    // Gradients of parameters come first, because dx may overwrite dy.
    if constexpr (HasSum<Spec>)
      if (spec_.dw) SumTerms(pass);
    if constexpr (HasImageSums<Spec>)
      if (spec_.dw) SumImages(pass, Layer::ImageSums(spec_));
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const auto maker = DxOf(spec_, table_.data());
    if constexpr (Moves<MakerOfDx<Spec>>()) {
      MoveTensor(context_, pass, maker, spec_.dy.tensor, spec_.dx.tensor);
      InspectExact(context_, spec_.dx, dx_stats_, pass);
    } else {
      Make(pass, maker, kernels_.dx, spec_.dy.tensor, spec_.dx.tensor, dx_stats_);
    }
  }

 private:
  static constexpr std::int64_t kPart = 2048;  // values that are made at a time

  // In the worker's memory: a block of the output and, after it, a part of the second input, the
  // block of it, or an image of the input.
  // The number of fp32 values.
  template <class Maker>
  static std::size_t Needs(const Shape& in, const Shape& out) {
    const std::size_t block = BlockValues(out);
    if (Maker::kMakes == Makes::kEach) return block + kPart;
    if (Maker::kMakes == Makes::kRuns) return InputsOf<Maker>() * block;
    return Moves<Maker>() ? 0 : block + static_cast<std::size_t>(in.per_image());
  }

  template <class Maker>
  void Make(const Pass& pass, const Maker& maker, FillKernel<Maker> fill, const Tensor& in,
            const Tensor& out, RoundingStats& stats) {
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const FillArgs a = Filled(pass, maker, fill, in, out.shape, image, n, worker);
                context_.kernels.round(a.out, 1.0f, At(out, image), a.values,
                                       stats.For(pass, block));
              });
    stats.Finish(pass);
  }
  // Computes the maker's values for the images of a block.
  template <class Maker>
  FillArgs Filled(const Pass& pass, const Maker& maker, FillKernel<Maker> fill, const Tensor& in,
                  const Shape& shape, std::int64_t image, std::int64_t n, int worker) const {
    FillArgs a;
    a.image = image, a.images = n, a.values = n * shape.per_image();
    a.out = reinterpret_cast<float*>(context_.scratch.worker(worker));
    a.random = {pass.seed ^ StreamOf(maker), pass.draw, pass.first_row};
    float* const more = a.out + BlockValues(shape);
    if constexpr (Maker::kMakes == Makes::kEach) {
      FillParts(maker, fill, in, a, more);
    } else if constexpr (Maker::kMakes == Makes::kRuns) {
      context_.kernels.widen(At(in, image), a.out, a.values);
      a.second = more;
      if (InputsOf<Maker>() == 2) context_.kernels.widen(At(spec_.x, image), more, a.values);
      fill(maker, a);
    } else {
      FillImages(maker, fill, in, a, more);
    }
    return a;
  }
  // What a maker makes of each code of x (a slope: of a dy of 1), for tensors with at least as many
  // values as there are codes; null: values are computed one by one.
  template <class Maker>
  const float* TableFor(const Maker& maker, FillKernel<Maker> fill) const {
    if constexpr (requires { Maker::kLookedUp; })
      if (Maker::kLookedUp && spec_.x.storage != Storage::kF32 &&
          spec_.x.shape.numel() >= (1 << 16))
        return context_.scratch.Table(NameOf(maker), [&](float* out) {
          std::vector<std::uint16_t> codes(1 << 16);
          std::iota(codes.begin(), codes.end(), std::uint16_t{0});
          std::vector<float> x(codes.size(), 1.0f);
          float* const widened = InputsOf<Maker>() == 2 ? x.data() : out;
          context_.kernels.widen({codes.data(), spec_.x.storage}, widened, 1 << 16);
          if (InputsOf<Maker>() == 2) std::fill_n(out, codes.size(), 1.0f);
          FillArgs a;
          a.values = 1 << 16, a.out = out, a.second = x.data();
          fill(maker, a);
        });
    return nullptr;
  }
  // Differs where makers or the storage of x do.
  template <class Maker>
  std::string NameOf(const Maker& maker) const {
    std::string name = typeid(Maker).name() + std::to_string(static_cast<int>(spec_.x.storage));
    if constexpr (requires { maker.function; })
      if constexpr (!std::is_empty_v<decltype(maker.function)>)
        name.append(reinterpret_cast<const char*>(&maker.function), sizeof maker.function);
    return name;
  }

  // Part by part, so that values stay in the nearest cache.
  template <class Maker>
  void FillParts(const Maker& maker, FillKernel<Maker> fill, const Tensor& in, const FillArgs& all,
                 float* second) const {
    const std::int64_t before = all.image * in.shape.per_image();
    FillArgs a = all;
    a.second = second;
    for (std::int64_t first = 0; first < all.values; first += a.values, a.out += a.values) {
      a.values = std::min(kPart, all.values - first);
      const TensorSpan values = Advance(At(in, 0), before + first);
      if (const float* table = InputsOf<Maker>() == 2 ? dx_table_ : y_table_; table != nullptr) {
        LookUp(table, InputsOf<Maker>() == 2, values, before + first, a, second);
        continue;
      }
      context_.kernels.widen(values, a.out, a.values);
      if (InputsOf<Maker>() == 2)
        context_.kernels.widen(Advance(At(spec_.x, 0), before + first), second, a.values);
      a.random.first = all.random.first * in.shape.per_image() + before + first;
      fill(maker, a);
    }
  }
  // The same by a table; `slope`: times the values, which are of dy.
  void LookUp(const float* table, bool slope, const TensorSpan& values, std::int64_t first,
              const FillArgs& a, float* slopes) const {
    const auto* x = static_cast<const std::uint16_t*>(Advance(At(spec_.x, 0), first).data);
    context_.kernels.look_up(x, table, slope ? slopes : a.out, a.values);
    if (!slope) return;
    context_.kernels.widen(values, a.out, a.values);
    context_.kernels.multiply(a.out, slopes, a.out, a.values);
  }
  // Image by image, for makers that read their input anywhere in the image: all of it is widened
  // first.
  template <class Maker>
  void FillImages(const Maker& maker, FillKernel<Maker> fill, const Tensor& in, const FillArgs& all,
                  float* input) const {
    FillArgs a = all;
    a.images = 1, a.values = all.values / all.images;
    a.input = input, a.input_values = in.shape.per_image();
    for (std::int64_t i = 0; i < all.images; ++i, ++a.image, a.out += a.values) {
      context_.kernels.widen(At(in, a.image), input, a.input_values);
      fill(maker, a);
    }
  }

  // dw as sums over pixels, by channel or of all: terms of a block go to strips, whose totals are
  // taken in their order.
  void SumTerms(const Pass& pass) {
    const auto term = Layer::Dw(spec_);
    const Shape& shape = spec_.x.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int worker) {
                const FillArgs a =
                    Filled(pass, term, kernels_.dw, spec_.dy.tensor, shape, image, n, worker);
                totals_.Add(context_, a.out, nullptr, image, n);
              });
    if (SumsByChannel(spec_))
      totals_.Unscaled(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
    else
      totals_.UnscaledOfAll(pass.rows, *spec_.dy.scale, pass.accumulate, spec_.dw.f32());
  }

  // In the order of images.
  // dw as sums over images of the first `n` values of dy, in fp32; beyond them dw is zero. Workers
  // share the values, not the images.
  void SumImages(const Pass& pass, std::int64_t n) {
    constexpr std::int64_t kPart = 1024;
    float* dw = spec_.dw.f32();
    context_.pool.For((n + kPart - 1) / kPart, [&](std::int64_t part, int) {
      float sum[kPart], row[kPart];
      const std::int64_t first = part * kPart, count = std::min(kPart, n - first);
      std::fill_n(sum, count, 0.0f);
      for (std::int64_t image = 0; image < pass.rows; ++image) {
        context_.kernels.widen(Advance(At(spec_.dy.tensor, image), first), row, count);
        context_.kernels.accumulate(row, sum, count);
      }
      context_.kernels.unscale(sum, *spec_.dy.scale, pass.accumulate, dw + first, count);
    });
    if (!pass.accumulate) std::fill_n(dw + n, spec_.w.shape.numel() - n, 0.0f);
  }

  Context context_;
  const FillKernels<Spec>& kernels_;
  Spec spec_;
  RoundingStats y_stats_, dx_stats_;
  StripTotals totals_;  // with dw
  std::vector<float> table_;
  // By code of x; null: there is none. They are the backend's, so that layers share them.
  const float *y_table_ = nullptr, *dx_table_ = nullptr;
};

}  // namespace

std::unique_ptr<Op> MakeValueOp(const Context& context, const OpSpec& spec) {
  return MakeOpOfValues<CpuValueOp>(context, spec);
}

}  // namespace ada::backend::cpu
