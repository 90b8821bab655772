// Builds a Graph: checks the network, makes parameters, asks for each layer's rule, plans,
// allocates and lets the backend make the ops. Only Graph::Build uses it.
#pragma once
#include <memory>
#include <vector>

#include "graph/bindings.h"
#include "graph/graph.h"
#include "graph/op_maker.h"
#include "graph/plan/plan.h"

namespace ada::graph {

// One builder makes one graph. The backend may decline a fusion only when it is asked for the op,
// so ops are made in a loop: plan, allocate, ask, and where something was declined begin anew with
// a plan without it (`limits_`). What does not depend on the plan (parameters, rules, sums by
// channel, positions) is made once, before the loop.
class Builder {
 public:
  Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share);
  std::unique_ptr<Graph> Build();

 private:
  // Parameters, scalers, statistics: the parts of `bindings_` that no plan changes.
  void Bind();
  void BindTokens();
  void AddLayerRows();
  // Rules come before the plan: it has to know which decisions read moments.
  void AskRules();
  void AskRulesWithin(const std::vector<bool>& needs);
  void AddChannelMoments();
  void AddPositions();
  bool MakeOps();  // false: a fusion was declined; plan anew without it
  void Allocate();
  void AllocateRecomputed(const OpPlan& batch_norm);
  bool MakeForward(OpMaker& maker);  // false as above
  // What a declined fusion asks of the next plan.
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
  // Bytes of bindings_.block; a later plan that needs no more takes the same block.
  std::size_t block_bytes_ = 0;
  FusionLimits limits_;                    // what the backend does not take
  std::vector<scaling::LayerRule> rules_;  // by node, then by decision within nodes
};

}  // namespace ada::graph
