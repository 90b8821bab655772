// Norms of a pixel's channels (layer norm, RMS norm; over their length: L2 normalization) or of a
// group of an image's channels (group norm).
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/strip_totals.h"

namespace ada::backend::cpu {
namespace {

// What values are divided by; a layer norm and a group norm subtract their mean before.
enum class Over { kDeviation, kRootMeanSquare, kLength };

// The op of layer, RMS and group norm and of L2 normalization. A group is what is normalized
// together: a pixel's channels or a group of an image's channels. Forward keeps each group's mean
// and inverse size in fp32 for Backward; values are computed in fp32 by block and rounded once.
class CpuGroupedNorm final : public Op {
 public:
  // groups: of an image's channels; 0: each pixel is a group.
  CpuGroupedNorm(const Context& context, const GroupedNormSpec& spec, int groups, Over over)
      : context_(context),
        spec_(spec),
        groups_(groups),
        by_length_(over == Over::kLength),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    const auto count = static_cast<std::size_t>(spec.x.shape.n * Image().groups);
    mean_.resize(count), inverse_.resize(count);
    // The kernel subtracts a mean where it gets a beta: a layer norm without one gets zeros, an RMS
    // norm and an L2 normalization get null.
    if (over == Over::kDeviation && !spec.beta)
      zeros_.resize(static_cast<std::size_t>(spec.x.shape.c));
    // In training a worker holds x (then dx), dy and xhat of a block.
    context.scratch.Reserve((spec.dgamma ? 3 : 1) * BlockValues(spec.x.shape) * sizeof(float), 0);
    context.scratch.CountOwn(static_cast<std::ptrdiff_t>(2 * count * sizeof(float)));
    if (!spec.dgamma) return;
    dgamma_ = StripTotals(context, spec.x.shape);
    if (spec.dbeta) dbeta_ = StripTotals(context, spec.x.shape);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* x = Block(spec_.x, image, n, worker, 0);
                for (std::int64_t i = 0; i < n; ++i) {
                  GroupedNormArgs a = At(image + i);
                  a.x = a.out = x + i * spec_.x.shape.per_image();
                  context_.kernels.grouped_norm(a);
                }
                Store(x, spec_.y, image, n, y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    if (spec_.dx) *spec_.dx.scale = *spec_.dy.scale;
    const std::int64_t per_image = spec_.x.shape.per_image();
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* x = Block(spec_.x, image, n, worker, 0);
                float* dy = Block(spec_.dy.tensor, image, n, worker, 1);
                float* hat = dy + BlockValues(spec_.x.shape);
                for (std::int64_t i = 0; i < n; ++i) {
                  GroupedNormArgs a = At(image + i);
                  a.x = a.out = x + i * per_image, a.dy = dy + i * per_image;
                  context_.kernels.grouped_norm_backward(a, hat + i * per_image);
                }
                // Blocks are parts of the images; the totals are added up over strips
                // (reductions.h), whose sums do not depend on who computes them.
                dgamma_.Add(context_, dy, hat, image, n);
                if (spec_.dbeta) dbeta_.Add(context_, dy, nullptr, image, n);
                if (spec_.dx) Store(x, spec_.dx.tensor, image, n, dx_stats_.For(pass, block));
              });
    const float scale = *spec_.dy.scale;
    dgamma_.Unscaled(pass.rows, scale, pass.accumulate, spec_.dgamma.f32());
    if (spec_.dbeta) dbeta_.Unscaled(pass.rows, scale, pass.accumulate, spec_.dbeta.f32());
    if (spec_.dx) dx_stats_.Finish(pass);
  }

 private:
  // The groups of an image.
  GroupedNormArgs Image() const {
    const Shape& shape = spec_.x.shape;
    const std::int64_t pixels = shape.h * shape.w;
    GroupedNormArgs a;
    a.step = shape.c;
    if (groups_ == 0) {
      a.groups = pixels, a.run = shape.c;
    } else {
      a.groups = groups_, a.runs = pixels, a.run = a.affine_step = shape.c / groups_;
    }
    a.gamma = spec_.gamma.f32(), a.beta = zeros_.empty() ? spec_.beta.f32() : zeros_.data();
    a.eps = static_cast<double>(spec_.eps), a.by_length = by_length_;
    return a;
  }
  // The same with the places of this image's means and inverse sizes.
  GroupedNormArgs At(std::int64_t image) {
    GroupedNormArgs a = Image();
    a.mean = mean_.data() + image * a.groups, a.inverse = inverse_.data() + image * a.groups;
    return a;
  }
  float* Block(const Tensor& tensor, std::int64_t image, std::int64_t n, int worker,
               std::size_t part) const {
    const Shape& shape = spec_.x.shape;
    return WidenedBlock(context_, tensor, shape, image, n * shape.per_image(), worker, part);
  }
  void Store(const float* values, const Tensor& to, std::int64_t image, std::int64_t n,
             const Rounding& rounding) const {
    context_.kernels.round(values, 1.0f, cpu::At(to, image), n * to.shape.per_image(), rounding);
  }

  Context context_;
  GroupedNormSpec spec_;
  int groups_;
  bool by_length_;
  std::vector<float> mean_, inverse_;  // by group of the batch
  std::vector<float> zeros_;           // beta of a layer norm without one; empty: it has one
  RoundingStats y_stats_, dx_stats_;
  StripTotals dgamma_, dbeta_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const LayerNormSpec& s) {
  return std::make_unique<CpuGroupedNorm>(c, s, 0, Over::kDeviation);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const RmsNormSpec& s) {
  return std::make_unique<CpuGroupedNorm>(c, s, 0, Over::kRootMeanSquare);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const L2NormalizeSpec& s) {
  return std::make_unique<CpuGroupedNorm>(c, s, 0, Over::kLength);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const GroupNormSpec& s) {
  return std::make_unique<CpuGroupedNorm>(c, s, s.groups, Over::kDeviation);
}

}  // namespace ada::backend::cpu
