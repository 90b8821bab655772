// Suppression compares each candidate only with boxes that were kept near it: these lie in a grid
// of cells by their centers. The comparison itself is the same as between all pairs, so the result
// is, too.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "vision/box.h"

namespace ada::vision {
namespace {

template <class T>
struct SelectedBox {
  BasicBox<T> box;
  T area;
};

// Returns what Overlap(a, b) >= overlap is for thresholds above 0, with areas that are computed
// once. Boxes without an intersection have no IoU that reaches such a threshold.
template <class T>
bool Overlaps(const SelectedBox<T>& a, const SelectedBox<T>& b, T overlap) {
  const T height = std::min(a.box.y1, b.box.y1) - std::max(a.box.y0, b.box.y0);
  const T width = std::min(a.box.x1, b.box.x1) - std::max(a.box.x0, b.box.x0);
  if (!(height > 0 && width > 0)) return false;
  const T common = height * width;
  return common / (a.area + b.area - common) >= overlap;
}

// The boxes that were kept, by the places of their centers: two boxes whose IoU is t have centers
// no farther apart than Reach(t) times the width (height) of either.
template <class T>
class SelectedBoxes {
 public:
  SelectedBoxes(std::span<const BasicBox<T>> boxes, std::span<const std::int32_t> order, T overlap)
      : overlap_(overlap), reach_(Reach(overlap)) {
    // Boxes without an intersection have an IoU, 0, that reaches thresholds up to 0.
    all_ = !(overlap > 0) || order.size() < kFew;
    for (const std::int32_t i : order) {
      const BasicBox<T>& box = boxes[static_cast<std::size_t>(i)];
      y_.Include(box.y0, box.y1);
      x_.Include(box.x0, box.x1);
    }
    all_ = all_ || !y_.Finite() || !x_.Finite();
    cells_.resize(all_ ? 1 : kCells * kCells);
  }

  // Returns whether a box that was kept overlaps the candidate too much. A single cell holds all
  // boxes where the grid is not worth it or does not exist: few boxes, thresholds up to 0, centers
  // that are not finite.
  bool Suppress(const SelectedBox<T>& candidate) const {
    if (all_) {
      return std::any_of(cells_[0].begin(), cells_[0].end(), [&](const SelectedBox<T>& better) {
        return overlap_ > 0 ? Overlaps(better, candidate, overlap_)
                            : Overlap(better.box, candidate.box) >= overlap_;
      });
    }
    const BasicBox<T>& b = candidate.box;
    const auto [top, bottom] = y_.Around(b.y0, b.y1, reach_);
    const auto [left, right] = x_.Around(b.x0, b.x1, reach_);
    for (std::size_t row = top; row <= bottom; ++row) {
      for (std::size_t column = left; column <= right; ++column) {
        for (const SelectedBox<T>& better : cells_[row * kCells + column]) {
          if (Overlaps(better, candidate, overlap_)) return true;
        }
      }
    }
    return false;
  }

  void Add(const SelectedBox<T>& kept) {
    const std::size_t cell =
        all_ ? 0
             : y_.CellOf(kept.box.y0, kept.box.y1) * kCells + x_.CellOf(kept.box.x0, kept.box.x1);
    cells_[cell].push_back(kept);
  }

 private:
  static constexpr std::size_t kCells = 24, kFew = 64;
  // Along one axis, stretches of lengths w and v whose IoU is at least t have v <= w / t and
  // centers at most w (1 / t - 1) / 2 apart; the bound is never taken below 1 - t, and the constant
  // covers rounding.
  static T Reach(T t) { return std::max(1 - t, T{0.5} / t - T{0.5}) + T{0.001}; }

  // Cells along one axis, between the smallest and the largest center.
  struct Axis {
    T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::lowest();
    bool finite = true;
    void Include(T from, T to) {
      const T center = from / 2 + to / 2;
      finite = finite && std::isfinite(center);
      low = std::min(low, center);
      high = std::max(high, center);
    }
    bool Finite() const { return finite && std::isfinite(high - low); }
    std::size_t Cell(T center) const {
      if (!(high > low)) return 0;
      const T share = std::clamp((center - low) / (high - low), T{0}, T{1});
      return std::min(static_cast<std::size_t>(share * kCells), kCells - 1);
    }
    std::size_t CellOf(T from, T to) const { return Cell(from / 2 + to / 2); }
    std::pair<std::size_t, std::size_t> Around(T from, T to, T reach) const {
      const T rounding = 16 * std::numeric_limits<T>::epsilon() * (std::abs(from) + std::abs(to));
      const T far = reach * std::abs(to - from) + rounding, center = from / 2 + to / 2;
      return {Cell(center - far), Cell(center + far)};
    }
  };

  T overlap_, reach_;
  bool all_ = false;
  Axis y_, x_;
  std::vector<std::vector<SelectedBox<T>>> cells_;
};

template <class T>
std::vector<std::int32_t> SuppressAs(std::span<const BasicBox<T>> boxes,
                                     std::span<const std::int32_t> order, T overlap, int limit) {
  std::vector<std::int32_t> kept;
  SelectedBoxes<T> selected(boxes, order, overlap);
  for (const std::int32_t i : order) {
    const BasicBox<T>& box = boxes[static_cast<std::size_t>(i)];
    const SelectedBox<T> candidate{box, box.Area()};
    if (selected.Suppress(candidate)) continue;
    kept.push_back(i);
    selected.Add(candidate);
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
