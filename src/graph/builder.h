// Builds a Graph: checks the network, makes parameters, asks for each layer's rule, plans,
// allocates and lets the backend make the ops. Used by Graph::Build alone.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/op_maker.h"
#include "graph/plan.h"

namespace ada::graph {

class Builder {
 public:
  Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share);
  std::unique_ptr<Graph> Build();

 private:
  void AddLayerRows();
  void AddParameters();
  void AddParameter(const std::string& name, std::vector<std::int64_t> dims, const Shape& shape,
                    bool trained);
  void AskRules();
  void AddChannelMoments();
  bool MakeOps();  // false: a chain was declined; plan anew without it
  void Allocate();
  bool MakePlannedOps(OpMaker& maker);
  void ListRoundings();
  void ListScales();
  const OpPlan* OpOf(int node) const;  // the op that starts at this node

  const GraphSpec& spec_;
  backend::Backend& backend_;
  const Graph* share_;
  Network network_;
  Plan plan_;
  Bindings bindings_;
  std::size_t block_bytes_ = 0;
  std::set<int> declined_;  // batch norms whose chains the backend does not take
  std::vector<scaling::LayerMethod> methods_;
  std::vector<int> op_of_, branch_of_;  // by node; -1: none
  std::unique_ptr<Graph> graph_;
};

}  // namespace ada::graph
