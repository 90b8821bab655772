// The calls of a step: thin loops over ops. How the graph came about stands in builder.cpp.
#include "graph/graph.h"

#include "core/error.h"
#include "graph/builder.h"

namespace ada::graph {

std::int64_t Parameter::numel() const { return value.shape.numel(); }

Graph::Graph() = default;
Graph::~Graph() = default;

std::unique_ptr<Graph> Graph::Build(const GraphSpec& spec, backend::Backend& backend,
                                    const Graph* share) {
  return Builder(spec, backend, share).Build();
}

void Graph::SetBatch(const float* images, const std::int32_t* labels, int rows) {
  input_->SetImages(images, rows);
  loss_->SetLabels(labels, rows);
}

void Graph::Forward(const backend::Pass& pass) {
  input_->Forward(pass);
  for (backend::Op* op : forward_) op->Forward(pass);
  loss_->Forward(pass);
}

void Graph::Backward(const backend::Pass& pass) {
  loss_->Backward(pass);
  for (backend::Op* op : backward_) op->Backward(pass);
}

void Graph::RefreshWeights(const backend::Pass& pass) {
  for (backend::Op* op : forward_) op->RefreshWeights(pass);
}

backend::LossResult Graph::Result() { return loss_->Result(); }

int Graph::classes() const { return static_cast<int>(layers_.back().output.c); }

}  // namespace ada::graph
