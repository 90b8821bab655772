// Input, relu and add.
#include <algorithm>
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// Images are rounded when they are set; where that takes a pass (random numbers, counts), a copy of
// them waits for Forward.
class CpuInput final : public InputOp {
 public:
  CpuInput(const Context& context, const InputSpec& spec)
      : context_(context), spec_(spec), stats_(spec.y, spec.y_style, spec.y_stats) {
    if (!spec.y_style.stochastic && !stats_.wanted()) return;
    waiting_.resize(static_cast<std::size_t>(spec.y.shape.numel()));
    context_.scratch.CountOwn(Bytes());
  }
  ~CpuInput() override { context_.scratch.CountOwn(-Bytes()); }
  // The images belong to the caller and may change when this returns; a block's rounding without
  // random numbers and counts depends on nothing else in a pass than the rows.
  void SetImages(const float* images, int rows) override {
    Pass pass;
    pass.rows = rows;
    if (waiting_.empty()) return Round(images, pass);
    std::copy_n(images, rows * spec_.y.shape.per_image(), waiting_.data());
  }
  void Forward(const Pass& pass) override {
    if (waiting_.empty()) return;
    Round(waiting_.data(), pass);
    stats_.Finish(pass);
  }
  void Backward(const Pass&) override {}

 private:
  // y = round(images), block by block.
  void Round(const float* images, const Pass& pass) {
    const std::int64_t per_image = spec_.y.shape.per_image();
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                context_.kernels.round(images + image * per_image, 1.0f, At(spec_.y, image),
                                       n * per_image, stats_.For(pass, block));
              });
  }
  std::ptrdiff_t Bytes() const {
    return static_cast<std::ptrdiff_t>(waiting_.size() * sizeof(float));
  }

  Context context_;
  InputSpec spec_;
  RoundingStats stats_;
  std::vector<float, PageAllocator<float>> waiting_;
};

// A relu that is not fused into the norm before it. Forward copies values; dx is dy where y
// is positive, otherwise 0, and may overwrite dy. Moments are measured if a policy asks for
// them.
class CpuRelu final : public Op {
 public:
  CpuRelu(const Context& context, const ReluSpec& spec)
      : context_(context), spec_(spec), stats_(spec.dx) {
    ADA_CHECK(spec.x.format == spec.y.format);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t, int) {
                context_.kernels.relu(At(spec_.x, image), At(spec_.y, image),
                                      n * spec_.x.shape.per_image());
              });
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                context_.kernels.relu_backward(
                    At(spec_.dy.tensor, image), At(spec_.y, image), At(spec_.dx.tensor, image),
                    n * spec_.x.shape.per_image(), stats_.For(pass, block));
              });
    stats_.Finish(pass);
  }

 private:
  Context context_;
  ReluSpec spec_;
  RoundingStats stats_;
};

// The sum of the outputs of several layers, with one rounding. Gradients of its inputs are its own,
// which the graph passes on without an op.
class CpuAdd final : public Op {
 public:
  CpuAdd(const Context& context, const AddSpec& spec)
      : context_(context), spec_(spec), stats_(spec.y, spec.y_style, spec.y_stats) {}
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.y.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                // The kernel adds from left to right in fp32 and rounds the sum once.
                std::vector<TensorSpan> in;
                for (const Tensor& x : spec_.x) in.push_back(At(x, image));
                context_.kernels.sum(in.data(), nullptr, static_cast<int>(in.size()),
                                     At(spec_.y, image), n * spec_.y.shape.per_image(),
                                     stats_.For(pass, block));
              });
    stats_.Finish(pass);
  }
  void Backward(const Pass&) override {}  // an alias of the graph

 private:
  Context context_;
  AddSpec spec_;
  RoundingStats stats_;
};

}  // namespace

std::unique_ptr<InputOp> MakeInputOp(const Context& c, const InputSpec& s) {
  return std::make_unique<CpuInput>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ReluSpec& s) {
  return std::make_unique<CpuRelu>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AddSpec& s) {
  return std::make_unique<CpuAdd>(c, s);
}

}  // namespace ada::backend::cpu
