// Functions of each value alone that are rounded (activations.h).
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {
namespace {

template <class Function>
class CpuActivation final : public Op {
 public:
  CpuActivation(const Context& context, const ActivationSpec<Function>& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(2 * BlockValues(spec.x.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const std::int64_t values = n * spec_.x.shape.per_image();
                float* x = Widened(spec_.x, image, values, worker, 0);
                functions().value(spec_.function, x, values);
                context_.kernels.round(x, 1.0f, At(spec_.y, image), values,
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    ForBlocks(context_, spec_.x.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const std::int64_t values = n * spec_.x.shape.per_image();
                const float* x = Widened(spec_.x, image, values, worker, 0);
                float* dy = Widened(spec_.dy.tensor, image, values, worker, 1);
                functions().gradient(spec_.function, x, dy, values);
                context_.kernels.round(dy, 1.0f, At(spec_.dx.tensor, image), values,
                                       dx_stats_.For(pass, block));
              });
    dx_stats_.Finish(pass);
  }

 private:
  const ActivationKernels<Function>& functions() const {
    return std::get<ActivationKernels<Function>>(*context_.kernels.activations);
  }
  // A block of a tensor as fp32, in part 0 or 1 of the worker's memory.
  float* Widened(const Tensor& tensor, std::int64_t image, std::int64_t values, int worker,
                 std::size_t part) {
    auto* to = reinterpret_cast<float*>(context_.scratch.worker(worker)) +
               part * BlockValues(spec_.x.shape);
    context_.kernels.widen(At(tensor, image), to, values);
    return to;
  }

  Context context_;
  ActivationSpec<Function> spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <class Function>
std::unique_ptr<Op> MakeOp(const Context& c, const ActivationSpec<Function>& s) {
  return std::make_unique<CpuActivation<Function>>(c, s);
}
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Sigmoid>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Silu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Tanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardtanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Relu6>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<LeakyRelu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardsigmoid>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Hardswish>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Gelu>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<GeluTanh>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Softplus>&);
template std::unique_ptr<Op> MakeOp(const Context&, const ActivationSpec<Elu>&);

}  // namespace ada::backend::cpu
