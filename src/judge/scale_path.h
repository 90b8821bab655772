// The way of S through a network, from the loss to the first layers: which gradients carry the
// scale that a layer has chosen, and where scales of several branches meet. Names and numbers only.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::judge {

// Made once for a run and asked once a step; holds no state between walks.
class ScalePath {
 public:
  // The path of a network that Build accepts. `scales_batch_norms`: whether the policy lets them
  // choose; `scales_attention`: whether it lets the gradients within attention. Throws ConfigError
  // on an unknown zoo model.
  explicit ScalePath(const config::ModelConfig& model, bool scales_batch_norms = false,
                     bool scales_attention = true);

  // Names by which a policy is asked, in the order in which a graph asks: layers that choose a
  // scale for the dx that they compute (LayerKind::Chooses), and the gradients within layers that
  // have a decision each (LayerKind::decisions), LAYER.dk to LAYER.dv, both in forward order.
  const std::vector<std::string>& choosers() const { return choosers_; }

  struct Choice {
    // S_out of a tensor that a chooser computes.
    std::function<float(const std::string& layer, const std::string& tensor, float scale_in)> layer;
    // S of the sum of the gradients of `layer`'s output, whose branches carry these.
    std::function<float(const std::string& layer, const std::vector<float>& branches)> sum;
    // What dx of a layer that chooses nothing carries; without it, what arrives.
    std::function<float(const std::string& layer, float scale_in)> other = {};
  };
  // S of each dx, of the gradients within attention and of each sum of branches (dy), by layer and
  // tensor; `start`: of loss.dx.
  using Scales = std::map<std::pair<std::string, std::string>, float>;
  Scales Walk(float start, const Choice& choose) const;

  // The layer whose `gradients` format this dx or dy has: the one that made the value (a layer that
  // rounds nothing passes on its input's format); gradients within attention have its own format.
  // "": there is none.
  std::string FormatOwner(const std::string& layer, const std::string& tensor) const;

 private:
  struct Node {
    std::string name;
    std::vector<int> inputs;  // values: 0 the network's input, i + 1 the output of node i
    bool chooses, trained, rounds_output;
    bool is_attention, rounds_scores;
    bool needs_gradient = false;  // of its output: something up to here is trained
  };
  bool Needs(int value) const { return value > 0 && nodes_[value - 1].needs_gradient; }
  // Calls `use` with each gradient within the node that the policy is asked for.
  void EachWithin(const Node& node,
                  const std::function<void(const std::string& tensor)>& use) const;
  // What the gradients within attention carry; those that it hands on arrive at its inputs.
  void WalkAttention(const Node& node, float scale_in, const Choice& choose, Scales& scales,
                     std::vector<std::vector<float>>& arriving) const;

  std::vector<Node> nodes_;
  std::vector<int> outputs_;  // values that the loss is of
  std::vector<std::string> choosers_;
  bool scales_attention_;
};

// The entry of scaling.layers whose total_scale a gradient carries: that of its layer, or of one
// nearer to the loss, where those between hand S on; -1: none.
int TotalScaleEntry(const config::Config& config, const std::string& layer,
                    const std::string& tensor);

}  // namespace ada::judge
