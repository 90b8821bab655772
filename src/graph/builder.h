// From a configuration to a graph.
#pragma once
#include <memory>
#include <vector>

#include "graph/bindings.h"
#include "graph/graph.h"
#include "graph/op_maker.h"
#include "graph/plan/plan.h"

namespace ada::graph {

// Builds a Graph: checks the network, makes parameters, asks for each layer's rule, plans,
// allocates and lets the backend make the ops. Only Graph::Build uses it. One builder makes one
// graph. A backend can decline a fusion only when it is asked to make the op, so ops are made in a
// loop: plan, allocate, ask, and if something was declined start again with a plan without it
// (`limits_`). What does not depend on the plan (parameters, rules, sums by channel, positions) is
// made once, before the loop.
class Builder {
 public:
  Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share);
  std::unique_ptr<Graph> Build();

 private:
  // Parameters, scalers, statistics: the parts of `bindings_` that no plan changes.
  void Bind();
  void BindTokens();
  void AddLayerRows();
  // Asked before planning, because the plan has to know which decisions read moments.
  void AskRules();
  void AskRulesWithin(std::size_t node);
  void AddChannelMoments();
  void AddPositions();
  bool MakeOps();  // false: a fusion was declined, so plan again without it
  void Allocate();
  void AllocateRecomputed(const OpPlan& batch_norm);
  bool MakeForward(OpMaker& maker);  // false: as above
  // Changes `limits_` so that the next plan avoids a declined fusion.
  bool IsSettled(const OpPlan& op) const;
  void Decline(const OpPlan& op);
  void MakeBackward(OpMaker& maker);
  std::vector<int> GradientsOf(int node) const;
  void MakeEnds(OpMaker& maker);
  void FillLists();

  const GraphSpec& spec_;
  backend::Backend& backend_;
  const Graph* share_;
  const Network network_;
  const NetworkStorage storage_;
  std::unique_ptr<Graph> graph_;
  RoundingStyles styles_;
  Plan plan_;
  Bindings bindings_;
  // Size of bindings_.block; a later plan that needs no more memory reuses the block.
  std::size_t block_bytes_ = 0;
  FusionLimits limits_;                    // fusions that the backend has declined
  std::vector<scaling::LayerRule> rules_;  // by node, then by decision within nodes
};

}  // namespace ada::graph
