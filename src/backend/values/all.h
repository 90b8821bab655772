// Includes all layers that are defined once for all backends.
#pragma once
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "backend/values/enlarged.h"
#include "backend/values/factors.h"
#include "backend/values/moves.h"
#include "backend/values/sequences.h"

namespace ada::backend {

// A tuple of Each<Spec> for those specs of a variant that have LayerValues. The CPU backend
// makes its table of kernels from it, so that a layer added to values/ is in it
// automatically.
template <template <class> class Each, class Variant>
struct ValueLayersOf;
template <template <class> class Each, class... Specs>
struct ValueLayersOf<Each, std::variant<Specs...>> {
  using Type = decltype(std::tuple_cat(
      std::declval<
          std::conditional_t<HasValues<Specs>, std::tuple<Each<Specs>>, std::tuple<>>>()...));
};
template <template <class> class Each>
using ForValueLayers = typename ValueLayersOf<Each, OpSpec>::Type;

// A backend's op of the layer, ValueOp<Spec>(context, spec); null where it has no LayerValues.
template <template <class> class ValueOp, class Context>
std::unique_ptr<Op> MakeOpOfValues(const Context& context, const OpSpec& spec) {
  return std::visit(
      [&](const auto& s) -> std::unique_ptr<Op> {
        using Spec = std::decay_t<decltype(s)>;
        if constexpr (HasValues<Spec>)
          return std::make_unique<ValueOp<Spec>>(context, s);
        else
          return nullptr;
      },
      spec);
}

// --- Members that not every spec has ---

template <class Spec>
RoundingStyle StyleOfY(const Spec& spec) {
  if constexpr (requires { spec.y_style; }) return spec.y_style;
  return {};
}
template <class Spec>
TensorStats* StatsOfY(const Spec& spec) {
  if constexpr (requires { spec.y_stats; }) return spec.y_stats;
  return nullptr;
}
// Whether dw has one value for each channel of x.
template <class Spec>
bool SumsByChannel(const Spec& spec) {
  return spec.w.shape.c == spec.x.shape.c;
}

// Make the makers, with the table in a backend's memory. `table` points to what
// LayerValues<Spec>::Table returned; it is not read if a layer has none.
template <class Spec>
auto YOf(const Spec& spec, const Pass& pass, [[maybe_unused]] const float* table) {
  auto maker = LayerValues<Spec>::Y(spec, pass);
  if constexpr (HasTable<Spec>) maker.table = table;
  return maker;
}
template <class Spec>
auto DxOf(const Spec& spec, [[maybe_unused]] const float* table) {
  auto maker = LayerValues<Spec>::Dx(spec);
  if constexpr (HasTable<Spec>) maker.table = table;
  return maker;
}
template <class Spec>
using MakerOfY =
    decltype(LayerValues<Spec>::Y(std::declval<const Spec&>(), std::declval<const Pass&>()));
template <class Spec>
using MakerOfDx = decltype(LayerValues<Spec>::Dx(std::declval<const Spec&>()));
// Whether input and output of a layer that only moves values have the same format.
template <class Spec>
bool MovesWithinFormats(const Spec& spec) {
  const Tensor &dx = spec.dx.tensor, &dy = spec.dy.tensor;
  const bool y = spec.x.format == spec.y.format && spec.x.storage == spec.y.storage;
  const bool back = !spec.dx || (dx.format == dy.format && dx.storage == dy.storage);
  return (y || !Moves<MakerOfY<Spec>>()) && (back || !Moves<MakerOfDx<Spec>>());
}

}  // namespace ada::backend
