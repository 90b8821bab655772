// core/blocks/operand_blocks.h defines how blocks lie in an operand; here the tensors of a graph
// are described in its terms.
#include "train/observe/operand_places.h"

#include "backend/specs.h"

namespace ada::train {

OperandLayer::OperandLayer(const graph::LayerRow& row, const graph::Parameter& w)
    : weight(w.dims),
      groups(row.groups),
      transposed(row.kind == backend::ConvTranspose2dSpec::kKind) {}

OperandPlace OperandLayer::PlaceOfWeight(Operand operand) const {
  return {true, weight.size() == 2, groups, AlongChannels(operand, transposed), weight};
}

// A linear layer takes an image as one row, or each of its tokens.
OperandPlace OperandLayer::PlaceOfBatch(Operand operand, const Shape& shape,
                                        std::int64_t rows) const {
  const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
  const bool linear = weight.size() == 2 && shape.per_image() == (is_x ? weight[1] : weight[0]);
  return {
      false,  linear, groups, AlongChannels(operand, transposed), {rows, shape.c, shape.h, shape.w},
      !linear};
}

// Collective only where the processes decide together, since then the backend's scale of the tensor
// is also that of all.
float AmaxOfBatch(const std::vector<float>& values, Team& team) {
  const float amax = AmaxOf(values);
  if (!team.decides_together()) return amax;
  return static_cast<float>(backend::LargestOfAll(team.all(), static_cast<double>(amax)));
}

std::vector<float> RowAmaxesOfBatch(const OperandPlace& place, const std::vector<float>& values,
                                    Team& team) {
  std::vector<float> amaxes = RowAmaxesOfOperand(place, values);
  if (!team.decides_together() || place.along_channels) return amaxes;
  backend::LargestOfAll(team.all(), amaxes);
  return amaxes;
}

}  // namespace ada::train
