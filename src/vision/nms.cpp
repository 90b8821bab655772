#include "vision/nms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ada::vision {
namespace {

template <class T>
struct KeptBox {
  BasicBox<T> box;
  T area;
};

template <class T>
bool Overlaps(const KeptBox<T>& a, const KeptBox<T>& b, T overlap) {
  const T height = std::min(a.box.y1, b.box.y1) - std::max(a.box.y0, b.box.y0);
  const T width = std::min(a.box.x1, b.box.x1) - std::max(a.box.x0, b.box.x0);
  if (!(height > 0 && width > 0)) return false;
  const T common = height * width;
  return common / (a.area + b.area - common) >= overlap;
}

// Compares boxes without an intersection as well: their IoU, 0, reaches thresholds up to 0.
template <class T>
bool ReachesAtAll(const KeptBox<T>& a, const KeptBox<T>& b, T overlap) {
  return Overlap(a.box, b.box) >= overlap;
}

template <class T>
std::vector<std::int32_t> SuppressAs(std::span<const BasicBox<T>> boxes,
                                     std::span<const std::int32_t> order, T overlap, int limit) {
  std::vector<std::int32_t> kept;
  std::vector<KeptBox<T>> kept_boxes;
  for (const std::int32_t i : order) {
    const BasicBox<T>& box = boxes[static_cast<std::size_t>(i)];
    const KeptBox<T> candidate{box, box.Area()};
    const auto gone = [&](const KeptBox<T>& better) {
      return overlap > 0 ? Overlaps(better, candidate, overlap)
                         : ReachesAtAll(better, candidate, overlap);
    };
    if (std::any_of(kept_boxes.begin(), kept_boxes.end(), gone)) continue;
    kept.push_back(i);
    kept_boxes.push_back(candidate);
    if (limit > 0 && static_cast<int>(kept.size()) >= limit) break;
  }
  return kept;
}

template <class T>
std::vector<std::int32_t> InFallingOrder(std::span<const T> scores) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const T x = scores[static_cast<std::size_t>(a)], y = scores[static_cast<std::size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) {
      return std::isnan(x) != std::isnan(y) ? std::isnan(x) : a > b;
    }
    return x != y ? x > y : a > b;
  });
  return order;
}

}  // namespace

std::vector<std::int32_t> ByFallingScore(std::span<const float> scores) {
  return InFallingOrder(scores);
}

std::vector<std::int32_t> ByFallingScore(std::span<const double> scores) {
  return InFallingOrder(scores);
}

std::vector<std::int32_t> Suppress(std::span<const Box> boxes, std::span<const std::int32_t> order,
                                   double overlap, int limit) {
  return SuppressAs<float>(boxes, order, static_cast<float>(overlap), limit);
}

std::vector<std::int32_t> Suppress(std::span<const BasicBox<double>> boxes,
                                   std::span<const std::int32_t> order, double overlap, int limit) {
  return SuppressAs<double>(boxes, order, overlap, limit);
}

}  // namespace ada::vision
