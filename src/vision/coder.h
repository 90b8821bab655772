// SSD's boxes: the default boxes of a network, and the way between boxes and the values that its
// heads are trained on.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vision/box.h"

namespace ada::vision {

// The default boxes of SSD (Liu et al., ECCV 2016, section 2.2): a fixed set of boxes on the
// network's input, in the order in which its heads give their values. It lists the grids of the
// heads, the finest first; all lists but `sizes` have an entry a grid.
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

// Training takes the defaults; the others are for comparisons with recordings.
struct EncodeSpec {
  double overlap = 0.5;  // a default box with at least this IoU with a box is of its class
  // The locations of background boxes, which no loss reads: zero, or as recorded from ChainerCV the
  // encoding of the last box: -inf if that has no area.
  bool last_box_on_background = false;
};

// The section `detection` of the configuration fills it in; evaluation and prediction decode by it.
struct DecodeSpec {
  std::optional<double> nms =
      0.45;            // a box with this IoU or more with a better one goes; unset: none
  float score = 0.6F;  // the smallest that is kept
  int candidates = 0;  // of a class the best so many enter the suppression; 0: all
  int most = 0;        // of an image the best so many stay, in their order; 0: all
  // Probabilities and sizes as recorded from ChainerCV: with NumPy's exponentials, and without
  // subtracting the largest score: one above 88 gives NaN and its box vanishes. Equal scores in the
  // order in which NumPy leaves them. False: the usual softmax, ByFallingScore.
  bool as_recorded = false;
};

// The way between boxes and the values that SSD's heads are trained on and give (Liu et al., ECCV
// 2016, sections 2.2 and 3; formulas and order of operations as in ChainerCV's MultiboxCoder). The
// loader encodes labels with it (data/image_rows.cpp), and evaluation decodes what the network
// gives. It only holds the default boxes of one network, so that several threads may use it at a
// time.
class BoxCoder {
 public:
  explicit BoxCoder(const DefaultBoxSpec& spec);

  int boxes() const { return static_cast<int>(centers_.size()); }
  const DefaultBoxSpec& spec() const { return spec_; }

  // The targets of an image: `locations` [boxes, 4] (cy, cx, log h, log w, each relative to its
  // default box and divided by its variance) and `labels` [boxes], 0 for background, else 1 more
  // than the box's label. `ground_truth` is in pixels of the network's input.
  //
  // First, of all pairs that are left the one with the largest IoU is matched, until none is above
  // 1e-6 (of equal ones the first default box, then the first box): each box gets a default box.
  // Then each default box without one takes the box that it overlaps most, from `overlap` on.
  // Boxes without area, inverted ones and those with NaN match nothing.
  void Encode(std::span<const LabeledBox> ground_truth, float* locations, std::int32_t* labels,
              const EncodeSpec& spec = {}) const;

  // What a network found, in pixels of its input, not clipped: class by class, in each by falling
  // score (without suppression in the order of default boxes).
  // `locations` [boxes, 4], `scores` [boxes, classes] before the softmax with the background at 0.
  std::vector<Detection> Decode(const float* locations, const float* scores, int classes,
                                const DecodeSpec& spec = {}) const;

 private:
  struct Match;
  // Default boxes that differ only in their cell.
  struct Grid {
    std::int32_t first = 0, stride = 0;  // the first cell's; from one cell to the next
    std::vector<double> y0, y1, x0, x1;  // of each row's, each column's boxes
  };
  template <class Visit>
  void VisitOverlaps(const Box& box, Visit visit) const;
  Match BestFree(const Box& box, std::span<const std::int32_t> taken) const;
  std::vector<std::int32_t> MatchBoxes(std::span<const LabeledBox> ground_truth,
                                       double overlap) const;
  void EncodeOne(const Box& box, const CenterBox& center, float* location) const;

  DefaultBoxSpec spec_;
  std::vector<CenterBox> centers_;
  std::vector<Grid> grids_;
};

}  // namespace ada::vision
