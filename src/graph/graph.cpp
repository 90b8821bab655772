// The calls of a step: thin loops over ops. How the graph came about stands in builder.cpp.
#include "graph/graph.h"

#include <atomic>

#include "core/error.h"
#include "graph/builder.h"

namespace ada::graph {
namespace {

constexpr std::size_t kNotesBlock = 256 << 10, kBinsBlock = 256 << 10, kScalesBlock = 4 << 10;

std::uint64_t NextNumber() {
  static std::atomic<std::uint64_t> next{0};
  return next++;
}

}  // namespace

std::int64_t Parameter::numel() const { return value.shape.numel(); }

Graph::Graph(backend::Backend& backend)
    : backend_(backend),
      number_(NextNumber()),
      notes_(backend, kNotesBlock),
      bins_(backend, kBinsBlock),
      tensor_scales_(backend, kScalesBlock) {}
Graph::~Graph() = default;

std::unique_ptr<Graph> Graph::Build(const GraphSpec& spec, backend::Backend& backend,
                                    const Graph* share) {
  return Builder(spec, backend, share).Build();
}

void Graph::SetBatch(const float* images, const std::int32_t* labels, int rows) {
  input_->SetImages(images, rows);
  loss_->SetLabels(labels, rows);
}

void Graph::Run(Part part, const backend::Pass& pass, const std::function<void()>& body) {
  backend_.Run(number_ << 2 | static_cast<std::uint64_t>(part), pass, body);
}

void Graph::Forward(const backend::Pass& pass, TensorObserver* watcher) {
  const auto body = [&] {
    input_->Forward(pass);
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      forward_[i]->Forward(pass);
      if (watcher) Show(watched_.forward[i], pass, *watcher);
    }
    loss_->Forward(pass);
  };
  watcher ? body() : Run(Part::kForward, pass, body);
}

void Graph::Backward(const backend::Pass& pass, TensorObserver* watcher) {
  const auto body = [&] {
    loss_->Backward(pass);
    if (watcher) Show(watched_.backward[0], pass, *watcher);
    for (std::size_t i = 0; i < backward_.size(); ++i) {
      backward_[i]->Backward(pass);
      if (watcher) Show(watched_.backward[i + 1], pass, *watcher);
    }
  };
  watcher ? body() : Run(Part::kBackward, pass, body);
}

void Graph::RefreshWeights(const backend::Pass& pass) {
  Run(Part::kRefresh, pass, [&] {
    for (backend::Op* op : forward_) op->RefreshWeights(pass);
  });
}

// A watcher looks at scales as well.
void Graph::Show(const std::vector<ObservedTensor>& tensors, const backend::Pass& pass,
                 TensorObserver& watcher) {
  if (tensors.empty()) return;
  notes_.Fetch();
  backend_.Synchronize();
  for (const ObservedTensor& tensor : tensors) watcher.See(tensor, pass);
}

void Graph::Collect(const backend::Pass& pass) {
  notes_.Fetch();
  if (pass.bins) bins_.Fetch();
  backend_.Synchronize();
}

int Graph::classes() const { return static_cast<int>(layers_.back().output.c); }

}  // namespace ada::graph
