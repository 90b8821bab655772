// The tables of ssd300 and ssd512 are ChainerCV's, which took them from the authors' Caffe models.
#include <cmath>

#include "error.h"
#include "vision/coder.h"

namespace ada::vision {
namespace {

void CheckLists(const DefaultBoxSpec& spec) {
  const std::size_t grids = spec.grids.size();
  ADA_CHECK(grids > 0 && spec.steps.size() == grids && spec.aspects.size() == grids &&
            spec.sizes.size() == grids + 1);
}

}  // namespace

int DefaultBoxSpec::Boxes() const {
  int boxes = 0;
  for (std::size_t k = 0; k < grids.size(); ++k) boxes += grids[k] * grids[k] * BoxesOfCell(k);
  return boxes;
}

DefaultBoxSpec Ssd300Boxes() {
  DefaultBoxSpec spec;
  spec.input = 300;
  spec.grids = {38, 19, 10, 5, 3, 1};
  spec.steps = {8, 16, 32, 64, 100, 300};
  spec.sizes = {30, 60, 111, 162, 213, 264, 315};
  spec.aspects = {{2}, {2, 3}, {2, 3}, {2, 3}, {2}, {2}};
  return spec;
}

DefaultBoxSpec Ssd512Boxes() {
  DefaultBoxSpec spec;
  spec.input = 512;
  spec.grids = {64, 32, 16, 8, 4, 2, 1};
  spec.steps = {8, 16, 32, 64, 128, 256, 512};
  spec.sizes = {35.84, 76.8, 153.6, 230.4, 307.2, 384.0, 460.8, 537.6};
  spec.aspects = {{2}, {2, 3}, {2, 3}, {2, 3}, {2, 3}, {2}, {2}};
  return spec;
}

DefaultBoxSpec DefaultBoxesOf(const std::string& network) {
  if (network == "ssd300") return Ssd300Boxes();
  if (network == "ssd512") return Ssd512Boxes();
  throw InternalError("no default boxes are known for " + network);
}

std::vector<CenterBox> MakeDefaultBoxes(const DefaultBoxSpec& spec) {
  CheckLists(spec);
  std::vector<CenterBox> boxes;
  boxes.reserve(static_cast<std::size_t>(spec.Boxes()));
  for (std::size_t k = 0; k < spec.grids.size(); ++k) {
    // The order of a cell's boxes is the order of the heads' channels: weights that were trained
    // elsewhere depend on it.
    const double size = spec.sizes[k], large = std::sqrt(size * spec.sizes[k + 1]);
    for (int row = 0; row < spec.grids[k]; ++row) {
      for (int column = 0; column < spec.grids[k]; ++column) {
        const double cy = (row + 0.5) * spec.steps[k], cx = (column + 0.5) * spec.steps[k];
        boxes.push_back({cy, cx, size, size});
        boxes.push_back({cy, cx, large, large});
        for (const double aspect : spec.aspects[k]) {
          const double root = std::sqrt(aspect);
          boxes.push_back({cy, cx, size / root, size * root});
          boxes.push_back({cy, cx, size * root, size / root});
        }
      }
    }
  }
  return boxes;
}

}  // namespace ada::vision
