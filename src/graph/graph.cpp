// The calls of a step: thin loops over ops. How the graph came about stands in builder.cpp.
#include "graph/graph.h"

#include "core/error.h"
#include "graph/builder.h"

namespace ada::graph {
namespace {

void Show(const std::vector<WatchedTensor>& tensors, const backend::Pass& pass, Watcher& watcher) {
  for (const WatchedTensor& tensor : tensors) watcher.See(tensor, pass);
}

}  // namespace

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

void Graph::Forward(const backend::Pass& pass, Watcher* watcher) {
  input_->Forward(pass);
  for (std::size_t i = 0; i < forward_.size(); ++i) {
    forward_[i]->Forward(pass);
    if (watcher) Show(watched_.forward[i], pass, *watcher);
  }
  loss_->Forward(pass);
}

void Graph::Backward(const backend::Pass& pass, Watcher* watcher) {
  loss_->Backward(pass);
  if (watcher) Show(watched_.backward[0], pass, *watcher);
  for (std::size_t i = 0; i < backward_.size(); ++i) {
    backward_[i]->Backward(pass);
    if (watcher) Show(watched_.backward[i + 1], pass, *watcher);
  }
}

void Graph::RefreshWeights(const backend::Pass& pass) {
  for (backend::Op* op : forward_) op->RefreshWeights(pass);
}

backend::LossResult Graph::Result() { return loss_->Result(); }

int Graph::classes() const { return static_cast<int>(layers_.back().output.c); }

}  // namespace ada::graph
