// The way of S through a network, from the loss to the first layers: which gradients carry the
// scale that a layer has chosen, and where scales of several branches meet. Names and numbers only.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::what_if {

// Made once for a run and asked once a step; holds no state between walks.
class ScalePath {
 public:
  // The path of a network that Build accepts. `scales_batch_norms`: whether the policy lets them
  // choose. Throws ConfigError on an unknown zoo model.
  explicit ScalePath(const config::ModelConfig& model, bool scales_batch_norms = false);

  // Layers that choose a scale for the dx that they compute (LayerKind::Chooses), in forward order.
  const std::vector<std::string>& choosers() const { return choosers_; }

  struct Choice {
    // S_out of a chooser's dx.
    std::function<float(const std::string& layer, float scale_in)> layer;
    // S of the sum of the gradients of `layer`'s output, whose branches carry these.
    std::function<float(const std::string& layer, const std::vector<float>& branches)> sum;
  };
  // S of each dx and of each sum of branches (dy), by layer and tensor; `start`: of loss.dx.
  using Scales = std::map<std::pair<std::string, std::string>, float>;
  Scales Walk(float start, const Choice& choose) const;

  // The layer whose `gradients` format this dx or dy has: the one that made the value of which it
  // is the gradient (a layer that rounds nothing hands on its input's). "": none.
  std::string FormatOwner(const std::string& layer, const std::string& tensor) const;

 private:
  struct Node {
    std::string name;
    std::vector<int> inputs;  // values: 0 the network's input, i + 1 the output of node i
    bool chooses, trained, rounds_output;
    bool needs_gradient = false;  // of its output: something up to here is trained
  };
  bool Needs(int value) const { return value > 0 && nodes_[value - 1].needs_gradient; }

  std::vector<Node> nodes_;
  std::vector<int> outputs_;  // values that the loss is of
  std::vector<std::string> choosers_;
};

}  // namespace ada::what_if
