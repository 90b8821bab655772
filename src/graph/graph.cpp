// Runs the ops of a graph in order and moves what they share with the host; builder.cpp makes a
// graph.
#include "graph/graph.h"

#include <algorithm>
#include <atomic>

#include "error.h"

namespace ada::graph {
namespace {

backend::SharedMemory PartOf(const backend::SharedMemory& memory, std::size_t first,
                             std::size_t bytes) {
  return {memory.backend + first, memory.host + first, bytes};
}

// Sizes beyond what each node needs: one block is one copy when the host fetches it.
constexpr std::size_t kResultsBlock = 64 << 10, kBinsBlock = 256 << 10, kScalesBlock = 4 << 10;

std::uint64_t NextNumber() {
  static std::atomic<std::uint64_t> next{0};
  return next++;
}

}  // namespace

// Objects that do not fit into the last block go to a new one; the rest of it stays unused.
backend::SharedMemory SharedArena::Take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || blocks_.back().used + rounded > blocks_.back().memory.bytes)
    blocks_.push_back({backend_.AllocateShared(std::max(rounded, block_bytes_)), 0});
  Block& block = blocks_.back();
  const std::size_t first = block.used;
  block.used += rounded;
  return PartOf(block.memory, first, bytes);
}

void SharedArena::Fetch() {
  // Only what is in use is copied.
  for (const Block& block : blocks_)
    if (block.used > 0) backend_.Fetch(PartOf(block.memory, 0, block.used));
}

void SharedArena::Send() {
  for (const Block& block : blocks_) backend_.Send(PartOf(block.memory, 0, block.used));
}

Graph::Graph(backend::Backend& backend, std::size_t nodes)
    : backend_(backend),
      number_(NextNumber()),
      results_(backend, kResultsBlock + nodes * sizeof(LayerStats)),
      bins_(backend, kBinsBlock),
      branches_(backend, kScalesBlock),
      tensor_scales_(backend, kScalesBlock),
      layer_scalers_(backend, 0) {}
Graph::~Graph() = default;

void Graph::SetBatch(const float* images, const backend::Targets& targets, int rows) {
  input_->SetImages(images, rows);
  loss_->SetTargets(targets, rows);
}

void Graph::SetTokens(const std::int32_t* tokens, const backend::Targets& targets, int rows) {
  const auto count = static_cast<std::size_t>(rows * tokens_.shape.per_image());
  backend_.Upload(tokens_.data, tokens, count * sizeof(std::int32_t));
  loss_->SetTargets(targets, rows);
}

// The variant distinguishes graphs and their passes, so that a backend that replays recorded work
// never confuses them.
void Graph::Run(Part part, const backend::Pass& pass, const std::function<void()>& body,
                std::uint64_t kind) {
  constexpr std::uint64_t kParts = 1 + static_cast<std::uint64_t>(Part::kMicroBatch);
  constexpr std::uint64_t kMostKinds = 8 * (1 + backend::UpdatePlan::kKinds);
  ADA_CHECK(kind < kMostKinds);
  backend_.Run((number_ * kParts + static_cast<std::uint64_t>(part)) * kMostKinds + kind, pass,
               body);
}

void Graph::RunUpdate(const backend::Pass& pass, const Update& update) {
  Run(Part::kUpdate, pass, update.run, update.kind);
}

void Graph::RunMicroBatch(const backend::Pass& pass, const MicroBatch& batch) {
  const auto after = [&](Stage stage) {
    if (batch.after) batch.after(stage);
  };
  std::uint64_t kind = batch.update ? 1 + batch.update->kind : 0;
  for (const bool does : {batch.refreshes, batch.reducer != nullptr, batch.check != nullptr})
    kind = 2 * kind + (does ? 1 : 0);
  const auto body = [&] {
    if (batch.refreshes) RefreshWeights(pass);
    Forward(pass);
    after(Stage::kForward);
    Backward(pass, nullptr, batch.reducer);
    if (batch.check) batch.check();
    after(Stage::kBackward);
    if (!batch.update) return;
    RunUpdate(pass, *batch.update);
    after(Stage::kUpdate);
  };
  Run(Part::kMicroBatch, pass, body, kind);
}

// An observer looks at tensors between the ops, where a replay would not stop: in that case the ops
// are called directly.
void Graph::Forward(const backend::Pass& pass, TensorObserver* observer) {
  const auto body = [&] {
    if (input_) input_->Forward(pass);
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      forward_[i]->Forward(pass);
      if (observer) Observe(observed_.forward[i], pass, *observer);
    }
    loss_->Forward(pass);
  };
  observer ? body() : Run(Part::kForward, pass, body);
}

// If the reducer sums in the pass, its calls can be replayed with the ops; if it sums on the host,
// it is called between ops and no replay is possible.
void Graph::Backward(const backend::Pass& pass, TensorObserver* observer,
                     GradientReducer* reducer) {
  const bool sums = reducer && reducer->sums_in_pass();
  const auto body = [&] {
    loss_->Backward(pass);
    if (observer) Observe(observed_.backward[0], pass, *observer);
    for (std::size_t i = 0; i < backward_.size(); ++i) {
      backward_[i]->Backward(pass);
      if (observer) Observe(observed_.backward[i + 1], pass, *observer);
      if (reducer && !completes_[i].empty()) reducer->Reduce(completes_[i]);
    }
    if (!sums) return;
    reducer->Finish();
    FinishGradients(pass);
  };
  observer || (reducer && !sums) ? body()
                                 : Run(sums ? Part::kBackwardAndSums : Part::kBackward, pass, body);
}

// The order is fixed by the plan and equal in all processes, which the sums depend on.
std::vector<int> Graph::GradientOrder() const {
  std::vector<int> order;
  for (const std::vector<int>& step : completes_)
    order.insert(order.end(), step.begin(), step.end());
  return order;
}

void Graph::FinishGradients(const backend::Pass& pass) {
  for (backend::Op* op : backward_) op->FinishGradients(pass);
}

void Graph::RefreshWeights(const backend::Pass& pass) {
  Run(Part::kRefresh, pass, [&] { backend_.RefreshWeights(forward_, pass); });
}

// Observers read scales too, so these are fetched.
void Graph::Observe(const std::vector<ObservedTensor>& tensors, const backend::Pass& pass,
                    TensorObserver& observer) {
  if (tensors.empty()) return;
  results_.Fetch();
  backend_.Synchronize();
  for (const ObservedTensor& tensor : tensors) observer.Observe(tensor, pass);
}

void Graph::Collect(const backend::Pass& pass, const Wanted& wanted) {
  branches_.Fetch();
  if (wanted.scalers) layer_scalers_.Fetch();
  if (wanted.counts) results_.Fetch();
  if (wanted.counts && pass.bins) bins_.Fetch();
  backend_.Synchronize();
}

}  // namespace ada::graph
