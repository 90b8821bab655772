// Specs of losses, the end of a graph. Losses and softmax are fp32 or better; the gradient of each
// output is computed in fp32, over Pass::loss_terms, and rounded once after its scale S. Gradients
// are empty where a graph evaluates only.
//
// `reference`, as in the authors' program: a gradient is round(round(gradient) * S).
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "backend/spec_parts.h"

namespace ada::backend {

// Softmax cross-entropy of images, each with one label or two, mean over Pass::loss_terms of them.
struct ClassLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor logits;  // [n, 1, 1, classes]
  float label_smoothing = 0;
  bool mixes = false;  // rows may have second labels
  Gradient dlogits;
  bool reference = false;
  void Visit(auto&& visit) { visit(logits, dlogits); }
};

// Softmax cross-entropy of pixels, or of tokens, which are pixels of an image one pixel wide: the
// sum of weight[label] * CE over the labeled ones, over Pass::loss_terms of them (not over their
// weights, which torch's mean divides by).
struct PixelLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor logits;                     // [n, h, w, classes]
  std::vector<float> class_weights;  // by class; empty: 1 each
  Gradient dlogits;
  bool reference = false;
  void Visit(auto&& visit) { visit(logits, dlogits); }
};

// The loss of SSD (Liu et al. 2016): over Pass::loss_terms positive boxes (those whose label is
// above 0), Huber's loss of their four numbers (d^2 / 2 where |d| <= 1, else |d| - 1/2; d =
// locations - targets), and softmax cross-entropy of the positive boxes and of hard negatives: of
// each image the ceil(negatives * its positives) background boxes whose cross-entropy, in fp32, is
// largest, of equals those that come first, NaNs last.
struct MultiboxLossSpec {
  static constexpr char kKind[] = "loss";
  std::string layer = "loss";
  Tensor locations;  // [n, 1, boxes, 4]
  Tensor scores;     // [n, 1, boxes, classes], class 0 being the background
  double negatives = 3;
  Gradient dlocations, dscores;
  bool reference = false;
  // The recorded program multiplies Huber's loss of boxes that are not positive by zero, so that
  // what is not finite in their targets makes its loss NaN. Else nothing of them is read.
  bool reads_background = false;
  void Visit(auto&& visit) { visit(locations, scores, dlocations, dscores); }
};

using LossSpec = std::variant<ClassLossSpec, PixelLossSpec, MultiboxLossSpec>;

}  // namespace ada::backend
