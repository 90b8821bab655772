// Boxes on images, and how much of two boxes is common to both.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace ada::vision {

// Corners, rows before columns, in pixels from 0 or relative to a side, depending on its use. A
// point is inside if y0 <= y < y1 and x0 <= x < x1. y0 < y1 is not required.
template <class T>
struct BasicBox {
  T y0 = 0, x0 = 0, y1 = 0, x1 = 0;
  T Area() const { return (y1 - y0) * (x1 - x0); }
  friend bool operator==(const BasicBox&, const BasicBox&) = default;
};
using Box = BasicBox<float>;

// A labeled box. Labels count classes from 0; the background is none of them.
struct LabeledBox {
  Box box;
  int label = 0;
  bool difficult = false;  // VOC's mark: kept out of training, neither right nor wrong in a metric
};

// A box that a network found.
struct Detection {
  Box box;
  int label = 0;  // as in LabeledBox
  float score = 0;
};

// Intersection over union, in NumPy's types: each area in its box's own type, all else in the wider
// one. 0 where they only touch; NaN where both have no area. Inverted boxes have no intersection
// with any.
template <class A, class B>
auto Overlap(const BasicBox<A>& a, const BasicBox<B>& b) {
  using T = std::common_type_t<A, B>;
  const T y0 = std::max<T>(a.y0, b.y0), x0 = std::max<T>(a.x0, b.x0);
  const T y1 = std::min<T>(a.y1, b.y1), x1 = std::min<T>(a.x1, b.x1);
  const T common = (y1 - y0) * (x1 - x0) * (y0 < y1 && x0 < x1 ? T{1} : T{0});
  return common / (static_cast<T>(a.Area()) + static_cast<T>(b.Area()) - common);
}

// Returns a box of an image whose height and width are multiplied by these factors. Sides are
// multiplied in fp32, each once.
inline Box Scaled(const Box& box, float height, float width) {
  return {box.y0 * height, box.x0 * width, box.y1 * height, box.x1 * width};
}

// Indices by falling score: NaN before all, of equal ones the later first, as in ChainerCV, which
// reverses an ascending order.
std::vector<std::int32_t> ByFallingScore(std::span<const float> scores);
std::vector<std::int32_t> ByFallingScore(std::span<const double> scores);

// Non-maximum suppression: of boxes that overlap the one with the best score stays. Goes through
// the boxes in `order` and keeps each whose IoU with all kept before is below `overlap` (NaN is
// neither below nor above: it stays), until `limit` are kept (0: all). Returns their indices in
// this order. The overlap is compared in the boxes' type.
std::vector<std::int32_t> Suppress(std::span<const Box> boxes, std::span<const std::int32_t> order,
                                   double overlap, int limit = 0);
std::vector<std::int32_t> Suppress(std::span<const BasicBox<double>> boxes,
                                   std::span<const std::int32_t> order, double overlap,
                                   int limit = 0);

}  // namespace ada::vision
