// Ops that move values without changing them: shortcut A (subsampling with channel padding) and
// flatten. Exact, so nothing is rounded or counted; moments are taken where a policy asks.
#include "backend/cuda/kernels/elementwise.h"
#include "backend/cuda/ops/notes.h"
#include "backend/cuda/ops/ops.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

template <class Spec>
void CheckExact(const Spec& spec) {
  ADA_CHECK(spec.x.format == spec.y.format && spec.x.storage == spec.y.storage);
  ADA_CHECK(!spec.dx || (spec.dx.tensor.format == spec.dy.tensor.format &&
                         spec.dx.tensor.storage == spec.dy.tensor.storage));
}
ImageShape ImageOf(const Shape& shape) {
  return {static_cast<int>(shape.h), static_cast<int>(shape.w), static_cast<int>(shape.c)};
}

class CudaShortcut final : public Op {
 public:
  CudaShortcut(const Context& context, const ShortcutSpec& spec)
      : spec_(spec), y_notes_(context, spec.y, {}, nullptr), dx_notes_(context, spec.dx) {
    CheckExact(spec);
    dx_notes_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_notes_.Move(pass, PieceOf(spec_.y), Of<false>(spec_.x));
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_notes_.Move(pass, PieceOf(spec_.dx.tensor), Of<true>(spec_.dy.tensor));
  }

 private:
  template <bool kGradient>
  ShortcutValue<kGradient> Of(const Tensor& from) const {
    const auto pad = static_cast<int>((spec_.y.shape.c - spec_.x.shape.c) / 2);
    const ShortcutShape shape = {ImageOf(spec_.x.shape), ImageOf(spec_.y.shape), spec_.stride[0],
                                 spec_.stride[1], pad};
    return {PieceOf(from), shape, shape.fours()};
  }

  ShortcutSpec spec_;
  RoundingStats y_notes_, dx_notes_;
};

class CudaFlatten final : public Op {
 public:
  CudaFlatten(const Context& context, const FlattenSpec& spec)
      : spec_(spec), y_notes_(context, spec.y, {}, nullptr), dx_notes_(context, spec.dx) {
    CheckExact(spec);
    dx_notes_.PassScale(spec.dy);
  }
  void Forward(const Pass& pass) override {
    y_notes_.Move(pass, PieceOf(spec_.y), TransposedValue{PieceOf(spec_.x), Pixels(), Channels()});
  }
  void Backward(const Pass& pass) override {
    if (!spec_.dx) return;
    dx_notes_.Move(pass, PieceOf(spec_.dx.tensor),
                   TransposedValue{PieceOf(spec_.dy.tensor), Channels(), Pixels()});
  }

 private:
  int Pixels() const { return static_cast<int>(spec_.x.shape.h * spec_.x.shape.w); }
  int Channels() const { return static_cast<int>(spec_.x.shape.c); }

  FlattenSpec spec_;
  RoundingStats y_notes_, dx_notes_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ShortcutSpec& s) {
  return std::make_unique<CudaShortcut>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const FlattenSpec& s) {
  return std::make_unique<CudaFlatten>(c, s);
}

}  // namespace ada::backend::cuda
