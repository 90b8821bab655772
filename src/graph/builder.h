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

class Builder {
 public:
  Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share);
  std::unique_ptr<Graph> Build();

 private:
  void Bind();
  void BindTokens();
  void AddLayerRows();
  void AskRules();
  void AskRulesWithin(const std::vector<bool>& needs);
  void AddChannelMoments();
  void AddPositions();
  bool MakeOps();  // false: a fusion was declined; plan anew without it
  void Allocate();
  void AllocateRecomputed(const OpPlan& batch_norm);
  bool MakeForward(OpMaker& maker);  // false as above
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
  std::size_t block_bytes_ = 0;
  FusionLimits limits_;                    // what the backend does not take
  std::vector<scaling::LayerRule> rules_;  // by node, then by decision within nodes
};

}  // namespace ada::graph
