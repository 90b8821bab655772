// This is the encoding; decoder.cpp has the other way. Default boxes lie in regular grids, so that
// those which overlap a box are a rectangle of cells: only these are looked at, in place of all
// pairs of default boxes and boxes. The results are those of the full matrix of ChainerCV.
#include "vision/coder.h"

#include <algorithm>
#include <cmath>

namespace ada::vision {
namespace {

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
