// What a step must compute, in symbols, straight from the resolved network: no plan, no fusion, no
// shared memory. The independent truth for what graphs do on the fake backend.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/formulas.h"
#include "graph/graph.h"
#include "graph/network/shapes.h"

namespace ada::graph::test {

struct Reference {
  Symbol logits = 0;
  std::map<std::string, Symbol> gradients;                     // by parameter
  std::vector<std::pair<std::string, std::string>> roundings;  // layer, tensor: the expected list
  std::map<std::string, Symbol> symbols;                       // "layer tensor" of every rounding
  std::map<std::string, float> scales;                         // the same, S of it
  std::vector<std::string> decisions;  // layers of scales(), a branch as "branch LAYER"
};

Reference ReferenceOf(const Network& network, const RuleFor& rule_for,
                      bool scales_batch_norms = false);

}  // namespace ada::graph::test
