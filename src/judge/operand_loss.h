// What a recipe would lose of the operands of a layer's products, from the tensors themselves: each
// operand is rounded as precision.operands has it, with scales of blocks, rows or tensors and after
// a Hadamard transform.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/network/precision.h"
#include "judge/operand_judge.h"

namespace ada::judge {

// A row of what-if RUN: an operand that a recipe rounds.
struct RecipeRow : telemetry::BlockFigures {
  std::string recipe, layer, tensor, format;  // tensor: forward.x, dw.dy ...
  double scale = 1;                           // S that the values carry
  // Why most is lost; empty: nothing is. "saturated": more was cut off at the largest element.
  // Plain formats: "row" or "tensor", where values lie too far below the largest one of their
  // scale, "fixed scale", "no scale". Blocks have the causes of BlockCounts: "block"
  // (beside_largest), "scale rounding", "scale floor", "tensor scale".
  std::string cause;
};

// What is not in the stored tensors: random signs of a Hadamard transform.
struct RecipeDraw {
  std::uint64_t seed = 1, draw = 1;
};

// Returns a row for each operand that `rules` round and whose tensor is there; those of dx only
// where the layer has one. Rounding is to nearest where a training draws. A scale from earlier
// steps is taken as that of this one, which it follows. SQNR is that of the rounding alone: a
// transform keeps the sum of squares. The caller fills in `recipe`. The shapes must fit
// (RefuseShapes).
std::vector<RecipeRow> JudgeRecipe(const MatmulTensors& tensors, const graph::LayerOperands& rules,
                                   const RecipeDraw& draw);

// The layers with weights of a network, in its order, which says what a recipe spares. A recorded
// run also has layers of another kind (`external`) whose weights were dumped.
std::vector<std::string> ProductsOf(const config::ModelConfig& model,
                                    const std::vector<std::string>& dumped);

}  // namespace ada::judge

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<judge::RecipeRow> = Joined(std::to_array<Column<judge::RecipeRow>>({
                                                              {"recipe", &judge::RecipeRow::recipe},
                                                              {"layer", &judge::RecipeRow::layer},
                                                              {"tensor", &judge::RecipeRow::tensor},
                                                              {"format", &judge::RecipeRow::format},
                                                              {"scale", &judge::RecipeRow::scale,
                                                               kExact | kPlain},
                                                              {"cause", &judge::RecipeRow::cause},
                                                          }),
                                                          BlockColumns<judge::RecipeRow>());

}  // namespace ada::telemetry
