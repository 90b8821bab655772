// This is the encoding; decoder.cpp has the other way. Default boxes lie in regular grids, so that
// those which overlap a box are a rectangle of cells: only these are looked at, in place of all
// pairs of default boxes and boxes. The results are those of the full matrix of ChainerCV, whose
// tables of ssd300 and ssd512 are from the authors' Caffe models.
#include "vision/coder.h"

#include <algorithm>
#include <cmath>

#include "error.h"

namespace ada::vision {
namespace {

void CheckLists(const DefaultBoxSpec& spec) {
  const std::size_t grids = spec.grids.size();
  ADA_CHECK(grids > 0 && spec.steps.size() == grids && spec.aspects.size() == grids &&
            spec.sizes.size() == grids + 1);
}

constexpr double kLeastOverlap = 1e-6;  // of a box and the default box that it is given

// The rows (columns) of a grid whose boxes have a part in common with the stretch from `low` to
// `high`: they follow each other. None: first == end.
struct Stretch {
  std::size_t first = 0, end = 0;
};
Stretch Meeting(const std::vector<double>& from, const std::vector<double>& to, double low,
                double high) {
  const auto meets = [&](std::size_t i) { return std::max(from[i], low) < std::min(to[i], high); };
  Stretch found;
  while (found.first < from.size() && !meets(found.first)) ++found.first;
  found.end = found.first;
  while (found.end < from.size() && meets(found.end)) ++found.end;
  return found;
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

// A box's best default box.
struct BoxCoder::Match {
  double overlap = 0;
  std::int32_t at = -1;
};

BoxCoder::BoxCoder(const DefaultBoxSpec& spec) : spec_(spec), centers_(MakeDefaultBoxes(spec)) {
  int first = 0;
  for (std::size_t k = 0; k < spec.grids.size(); ++k) {
    const int cells = spec.grids[k], stride = spec.BoxesOfCell(k);
    // All boxes of the same kind in a grid have the same size: their edges are a list for the rows
    // and one for the columns.
    for (int box = 0; box < stride; ++box) {
      Grid grid{first + box, stride, {}, {}, {}, {}};
      for (int i = 0; i < cells; ++i) {
        const CenterBox& in_row =
            centers_[static_cast<std::size_t>(grid.first + i * cells * stride)];
        const CenterBox& in_column = centers_[static_cast<std::size_t>(grid.first + i * stride)];
        grid.y0.push_back(in_row.cy - in_row.h / 2);
        grid.y1.push_back(in_row.cy + in_row.h / 2);
        grid.x0.push_back(in_column.cx - in_column.w / 2);
        grid.x1.push_back(in_column.cx + in_column.w / 2);
      }
      grids_.push_back(std::move(grid));
    }
    first += cells * cells * stride;
  }
}

// Calls `visit` with each default box that has a part in common with `box`, and their IoU; in no
// order that matters.
template <class Visit>
void BoxCoder::VisitOverlaps(const Box& box, Visit visit) const {
  const double y0 = box.y0, x0 = box.x0, y1 = box.y1, x1 = box.x1;
  const double area = static_cast<double>(box.Area());
  for (const Grid& grid : grids_) {
    // An inverted box meets nothing. One with NaN may, but its IoU is NaN, which wins no
    // comparison.
    const Stretch rows = Meeting(grid.y0, grid.y1, y0, y1);
    const Stretch columns = Meeting(grid.x0, grid.x1, x0, x1);
    for (std::size_t row = rows.first; row < rows.end; ++row) {
      const double height = grid.y1[row] - grid.y0[row];
      const double common_height = std::min(grid.y1[row], y1) - std::max(grid.y0[row], y0);
      const auto first = static_cast<std::int32_t>(row * grid.x0.size());
      for (std::size_t column = columns.first; column < columns.end; ++column) {
        const double common =
            common_height * (std::min(grid.x1[column], x1) - std::max(grid.x0[column], x0));
        const double default_area = height * (grid.x1[column] - grid.x0[column]);
        visit(grid.first + (first + static_cast<std::int32_t>(column)) * grid.stride,
              common / (default_area + area - common));
      }
    }
  }
}

// The best of the default boxes that `taken` gives to no box (-1).
BoxCoder::Match BoxCoder::BestFree(const Box& box, std::span<const std::int32_t> taken) const {
  Match best;
  VisitOverlaps(box, [&](std::int32_t at, double overlap) {
    if (overlap < best.overlap || taken[static_cast<std::size_t>(at)] >= 0) return;
    if (overlap > best.overlap || at < best.at) best = {overlap, at};
  });
  return best;
}

// Returns the box of each default box, -1 for none.
std::vector<std::int32_t> BoxCoder::MatchBoxes(std::span<const LabeledBox> ground_truth,
                                               double overlap) const {
  std::vector<std::int32_t> matched(centers_.size(), -1), nearest(centers_.size(), -1);
  std::vector<double> largest(centers_.size(), 0);
  std::vector<Match> best(ground_truth.size());
  for (std::size_t j = 0; j < ground_truth.size(); ++j) {
    Match& own = best[j];
    VisitOverlaps(ground_truth[j].box, [&](std::int32_t at, double iou) {
      const auto i = static_cast<std::size_t>(at);
      // Strictly larger: of boxes that overlap a default box equally the first one stays.
      if (iou > largest[i]) {
        largest[i] = iou;
        nearest[i] = static_cast<std::int32_t>(j);
      }
      if (iou > own.overlap || (iou == own.overlap && at < own.at)) own = {iou, at};
    });
  }
  // A best match that was taken meanwhile is still a bound: it is searched again only if it leads.
  const auto leads = [&](const Match& a, const Match& b) {
    return a.overlap != b.overlap ? a.overlap > b.overlap : a.at < b.at;
  };
  while (true) {
    std::size_t leader = 0;
    for (std::size_t j = 1; j < best.size(); ++j) {
      if (leads(best[j], best[leader])) leader = j;
    }
    if (best.empty() || !(best[leader].overlap > kLeastOverlap)) break;
    std::int32_t& place = matched[static_cast<std::size_t>(best[leader].at)];
    if (place >= 0) {
      best[leader] = BestFree(ground_truth[leader].box, matched);
    } else {
      place = static_cast<std::int32_t>(leader);
      best[leader] = {};
    }
  }
  for (std::size_t i = 0; i < matched.size(); ++i) {
    if (matched[i] < 0 && largest[i] >= overlap) matched[i] = nearest[i];
  }
  return matched;
}

// Sides and centers of the box are fp32, as in the arrays of the original; the default box makes
// the rest fp64.
void BoxCoder::EncodeOne(const Box& box, const CenterBox& center, float* location) const {
  const float h = box.y1 - box.y0, w = box.x1 - box.x0;
  const float cy = box.y0 + h / 2, cx = box.x0 + w / 2;
  location[0] = static_cast<float>((cy - center.cy) / (spec_.center_variance * center.h));
  location[1] = static_cast<float>((cx - center.cx) / (spec_.center_variance * center.w));
  location[2] = static_cast<float>(std::log(h / center.h) / spec_.size_variance);
  location[3] = static_cast<float>(std::log(w / center.w) / spec_.size_variance);
}

void BoxCoder::Encode(std::span<const LabeledBox> ground_truth, float* locations,
                      std::int32_t* labels, const EncodeSpec& spec) const {
  std::fill_n(locations, centers_.size() * 4, 0.0F);
  std::fill_n(labels, centers_.size(), 0);
  if (ground_truth.empty()) return;
  const std::vector<std::int32_t> matched = MatchBoxes(ground_truth, spec.overlap);
  for (std::size_t i = 0; i < matched.size(); ++i) {
    if (matched[i] >= 0) {
      const LabeledBox& box = ground_truth[static_cast<std::size_t>(matched[i])];
      EncodeOne(box.box, centers_[i], locations + 4 * i);
      labels[i] = box.label + 1;
    } else if (spec.last_box_on_background) {
      EncodeOne(ground_truth.back().box, centers_[i], locations + 4 * i);
    }
  }
}

}  // namespace ada::vision
