// The default boxes of SSD (Liu et al., ECCV 2016, section 2.2): a fixed set of boxes on the
// network's input, in the order in which its heads give their values.
#pragma once
#include <string>
#include <vector>

namespace ada::vision {

// The grids of a network's heads, the finest first; all lists but `sizes` have an entry a grid.
struct DefaultBoxSpec {
  int input = 0;                             // height and width of the network's input, in pixels
  std::vector<int> grids;                    // cells along each side
  std::vector<double> steps;                 // pixels from one cell to the next
  std::vector<double> sizes;                 // of each grid's boxes, in pixels; one more than grids
  std::vector<std::vector<double>> aspects;  // ratios besides 1; each gives two boxes, r and 1 / r
  double center_variance = 0.1, size_variance = 0.2;  // encoded values are divided by these

  int BoxesOfCell(std::size_t grid) const { return 2 + 2 * static_cast<int>(aspects[grid].size()); }
  int Boxes() const;  // all of them
};

// What the networks `ssd300` and `ssd512` have for VOC: 8732 and 24564 boxes.
DefaultBoxSpec Ssd300Boxes();
DefaultBoxSpec Ssd512Boxes();
// One of these by the network's name; throws InternalError for another.
DefaultBoxSpec DefaultBoxesOf(const std::string& network);

// This is a default box by its center and sides, the form in which boxes are encoded.
struct CenterBox {
  double cy = 0, cx = 0, h = 0, w = 0;  // pixels of the network's input
};

// By grid, row, column and box of the cell: the square of the grid's size, the square of the
// geometric mean of this size and the next, then for each ratio r the box wider by sqrt(r) and the
// one higher by it. They are not clipped at the border. Throws InternalError where the lists do
// not fit together.
std::vector<CenterBox> MakeDefaultBoxes(const DefaultBoxSpec& spec);

}  // namespace ada::vision
