// Every pointer of every spec; see specs.h.
#include "backend/compare/specs.h"

namespace ada::backend::compare {
namespace {

// Brings what it is given to the second's addresses.
class Mover {
 public:
  explicit Mover(const AddressMap& mirror) : mirror_(mirror) {}

  template <class... Parts>
  void operator()(Parts&... parts) const {
    (Move(parts), ...);
  }

 private:
  template <class T>
  void Move(T*& pointer) const {
    pointer = mirror_.Second(pointer);
  }
  void Move(Tensor& tensor) const { Move(tensor.data); }
  void Move(RoundingStyle& style) const { (*this)(style.scaler, style.bins); }
  void Move(Gradient& g) const { (*this)(g.tensor, g.scale, g.stats, g.moments, g.style); }

  const AddressMap& mirror_;
};

void Product(const AddressMap& mirror, ProductSpec& s) {
  Mover{mirror}(s.x, s.w, s.b, s.y, s.y_stats, s.w_stats, s.y_style, s.w_style, s.dw_style,
                s.y_moments.mean, s.y_moments.m2, s.dy, s.dx, s.dw, s.db, s.dw_stats, s.scaler,
                s.x_scaler);
}

}  // namespace

InputSpec ForSecond(const AddressMap& mirror, InputSpec s) {
  Mover{mirror}(s.x, s.y, s.y_stats, s.y_style);
  return s;
}
Conv2dSpec ForSecond(const AddressMap& mirror, Conv2dSpec s) {
  Product(mirror, s);
  return s;
}
LinearSpec ForSecond(const AddressMap& mirror, LinearSpec s) {
  Product(mirror, s);
  return s;
}
BatchNormSpec ForSecond(const AddressMap& mirror, BatchNormSpec s) {
  Mover{mirror}(s.x, s.gamma, s.beta, s.running_mean, s.running_var, s.out, s.addend,
                s.x_moments.mean, s.x_moments.m2, s.y_stats, s.sum_stats, s.y_style, s.sum_style,
                s.dy, s.dx, s.dgamma, s.dbeta);
  return s;
}
ReluSpec ForSecond(const AddressMap& mirror, ReluSpec s) {
  Mover{mirror}(s.x, s.y, s.dy, s.dx);
  return s;
}
MaxPoolSpec ForSecond(const AddressMap& mirror, MaxPoolSpec s) {
  Mover{mirror}(s.x, s.y, s.dy, s.dx);
  return s;
}
AvgPoolSpec ForSecond(const AddressMap& mirror, AvgPoolSpec s) {
  Mover{mirror}(s.x, s.y, s.y_stats, s.y_style, s.dy, s.dx);
  return s;
}
AddSpec ForSecond(const AddressMap& mirror, AddSpec s) {
  for (Tensor& x : s.x) Mover{mirror}(x);
  Mover{mirror}(s.y, s.y_stats, s.y_style);
  return s;
}
ScaleSpec ForSecond(const AddressMap& mirror, ScaleSpec s) {
  Mover{mirror}(s.x, s.y, s.y_stats, s.y_style, s.dy, s.dx, s.scaler);
  return s;
}
ShortcutSpec ForSecond(const AddressMap& mirror, ShortcutSpec s) {
  Mover{mirror}(s.x, s.y, s.dy, s.dx);
  return s;
}
FlattenSpec ForSecond(const AddressMap& mirror, FlattenSpec s) {
  Mover{mirror}(s.x, s.y, s.dy, s.dx);
  return s;
}
DropoutSpec ForSecond(const AddressMap& mirror, DropoutSpec s) {
  Mover{mirror}(s.x, s.y, s.y_stats, s.y_style, s.dy, s.dx);
  return s;
}
BranchSumSpec ForSecond(const AddressMap& mirror, BranchSumSpec s) {
  for (Gradient& branch : s.branches) Mover{mirror}(branch);
  Mover{mirror}(s.sum, s.decision);
  return s;
}
LossSpec ForSecond(const AddressMap& mirror, LossSpec s) {
  Mover{mirror}(s.logits, s.dlogits);
  return s;
}
UpdateSlot ForSecond(const AddressMap& mirror, UpdateSlot s) {
  Mover{mirror}(s.value, s.gradient, s.state1, s.state2);
  return s;
}

}  // namespace ada::backend::compare
