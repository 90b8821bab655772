// BoxCoder::Decode. This is the way from the values of SSD's heads to detections: probabilities,
// boxes, and for each class a threshold and suppression. `plain` below is DecodeSpec::as_recorded.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "vision/box.h"
#include "vision/coder.h"
#include "vision/numpy.h"

namespace ada::vision {
namespace {

// The probabilities of each box's classes, class after class: [classes, boxes].
std::vector<float> Probabilities(const float* scores, std::size_t boxes, std::size_t classes,
                                 bool plain) {
  std::vector<float> probabilities(boxes * classes), terms(classes);
  for (std::size_t i = 0; i < boxes; ++i) {
    const float* row = scores + i * classes;
    const float largest = plain ? 0 : *std::max_element(row, row + classes);
    for (std::size_t c = 0; c < classes; ++c)
      terms[c] = plain ? NumpyExp(row[c]) : std::exp(row[c] - largest);
    const float sum = NumpySum(std::span<const float>(terms));
    for (std::size_t c = 0; c < classes; ++c) probabilities[c * boxes + i] = terms[c] / sum;
  }
  return probabilities;
}

// Products of two fp32 numbers stay fp32, and the default box makes the rest fp64, as in NumPy.
BasicBox<double> DecodedBox(const CenterBox& center, const float* location,
                            const DefaultBoxSpec& spec, bool plain) {
  const auto by_center = static_cast<float>(spec.center_variance);
  const auto by_size = static_cast<float>(spec.size_variance);
  const double cy = center.cy + location[0] * by_center * center.h;
  const double cx = center.cx + location[1] * by_center * center.w;
  const auto exponential = [plain](float x) { return plain ? NumpyExp(x) : std::exp(x); };
  const double h = center.h * exponential(location[2] * by_size);
  const double w = center.w * exponential(location[3] * by_size);
  const double y0 = cy - h / 2, x0 = cx - w / 2;
  return {y0, x0, y0 + h, x0 + w};
}

Box Narrowed(const BasicBox<double>& box) {
  return {static_cast<float>(box.y0), static_cast<float>(box.x0), static_cast<float>(box.y1),
          static_cast<float>(box.x1)};
}

// Leaves the `most` with the best scores (of equal ones the first) in their order.
void KeepBest(std::vector<Detection>& found, std::size_t most) {
  if (most == 0 || found.size() <= most) return;
  std::vector<float> scores;
  // ByFallingScore puts the later of equal scores first. Over the reversed list that is the earlier
  // one.
  for (auto one = found.rbegin(); one != found.rend(); ++one) scores.push_back(one->score);
  std::vector<std::int32_t> best = ByFallingScore(scores);
  std::vector<char> stays(found.size(), 0);
  for (std::size_t i = 0; i < most; ++i)
    stays[found.size() - 1 - static_cast<std::size_t>(best[i])] = 1;
  std::size_t to = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (stays[i] != 0) found[to++] = found[i];
  }
  found.resize(most);
}

}  // namespace

std::vector<Detection> BoxCoder::Decode(const float* locations, const float* scores, int classes,
                                        const DecodeSpec& spec) const {
  const std::size_t boxes = centers_.size();
  const std::vector<float> probabilities =
      Probabilities(scores, boxes, static_cast<std::size_t>(classes), spec.as_recorded);
  std::vector<BasicBox<double>> decoded;
  for (std::size_t i = 0; i < boxes; ++i)
    decoded.push_back(DecodedBox(centers_[i], locations + 4 * i, spec_, spec.as_recorded));

  std::vector<Detection> found;
  std::vector<BasicBox<double>> candidates;
  std::vector<float> candidate_scores;
  // Column 0 of the scores is the background, which is never a detection.
  for (int label = 0; label + 1 < classes; ++label) {
    candidates.clear();
    candidate_scores.clear();
    const float* of_class = probabilities.data() + static_cast<std::size_t>(label + 1) * boxes;
    for (std::size_t i = 0; i < boxes; ++i) {
      // A probability that is NaN is dropped here.
      if (!(of_class[i] >= spec.score)) continue;
      candidates.push_back(decoded[i]);
      candidate_scores.push_back(of_class[i]);
    }
    std::vector<std::int32_t> kept;
    if (spec.nms || spec.candidates > 0) {
      kept =
          spec.as_recorded ? NumpyFallingOrder(candidate_scores) : ByFallingScore(candidate_scores);
      if (spec.candidates > 0 && kept.size() > static_cast<std::size_t>(spec.candidates))
        kept.resize(static_cast<std::size_t>(spec.candidates));
      if (spec.nms) kept = Suppress(candidates, kept, *spec.nms);
    } else {
      kept.resize(candidates.size());
      std::iota(kept.begin(), kept.end(), 0);
    }
    for (const std::int32_t i : kept) {
      const auto at = static_cast<std::size_t>(i);
      found.push_back({Narrowed(candidates[at]), label, candidate_scores[at]});
    }
  }
  KeepBest(found, static_cast<std::size_t>(spec.most));
  return found;
}

}  // namespace ada::vision
