// From a configuration to a graph: planned ops become a backend's, the numbers of a plan become
// tensors, gradients, statistics and parameters, and the lists of what a graph rounds, decides and
// shows are made.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "graph/network/tensor_storage.h"
#include "graph/plan/plan.h"
#include "graph/rounding_styles.h"

namespace ada::graph {

// The graph owns what is pointed to. Where memory is shared with the host, specs get the backend's
// address and the lists get the host's.
struct Bindings {
  const Network* network = nullptr;
  const Plan* plan = nullptr;
  const NetworkStorage* storage = nullptr;
  RoundingStyles* styles = nullptr;
  std::int64_t images = 1;
  bool training = true;
  std::byte* block = nullptr;        // activations and gradients
  std::vector<std::size_t> offsets;  // by buffer
  SharedArray<float> scales;         // by scale
  std::vector<Parameter>* parameters = nullptr;
  std::vector<std::vector<int>> parameters_of;           // by node (NetworkParameters::of)
  Tensor tokens;                                         // the network's input if it is tokens
  std::vector<backend::ChannelMoments> channel_moments;  // by node: of a convolution's y
  std::vector<backend::RecomputedNorm>
      recomputed;                         // by node: memory that batch norm and consumer share
  std::vector<std::uint16_t*> positions;  // by node: of a pool, where an unpooling reads them
  SharedArray<LayerStats> stats;          // 0: input and loss, i + 1: node i
  // By node of attention whose operands are rounded once more: by AttentionOperand.
  std::map<int, SharedArray<AttentionOperandStats>> attention_operands;
  // By node of attention: of each format that is judged, the counts by AttentionOperand.
  std::vector<BlockFormat> judged_formats;
  std::map<int, SharedArray<BlockCounts>> judged_operands;
  // Counts of rules that are judged lie by rule, node and product.
  std::vector<scaling::Accumulator> judged_rules;
  SharedArray<scaling::AccumulatorCounts> judged;
  std::size_t JudgedAt(std::size_t rule, int node, std::size_t product) const {
    return (rule * network->nodes.size() + static_cast<std::size_t>(node)) *
               scaling::kLayerMatmuls +
           product;
  }
  SharedArray<scaling::LayerScaler> scalers;      // by node, then by decision within nodes
  std::vector<int> first_decision;                // by node: index of its first decision, or -1
  SharedArray<scaling::ScaleDecision> decisions;  // by branch
  SharedArray<TensorMoments> moments;             // by gradient

  // The tensors of a value and of a gradient of the plan, in the form that specs need: in backend
  // memory, with the shape of the largest batch.
  Tensor Value(int value) const;
  Tensor Unstored(int value) const;            // without data
  backend::Gradient Grad(int gradient) const;  // empty for -1
  // At the host's address.
  const float* ScaleOf(int gradient) const { return scales.host + plan->gradients[gradient].scale; }
  // The rounding style of a value, for the layer that makes it (0: the network's input).
  backend::RoundingStyle ValueStyle(int value) const;
  // The per-tensor scale that a value carries from the layer that rounded it; null: none.
  const scaling::TensorScaler* PerTensorScale(int value) const;
  // The same of a gradient.
  const scaling::TensorScaler* GradientScale(int index) const;
  TensorStats* ValueStats(int value) const;  // null in a graph for evaluation only
  // `index` is the parameter's index in the row of the layer's kind: 0 is the weight, which is
  // another node's where it is tied.
  const Parameter& ParameterOf(int node, std::size_t index) const {
    return (*parameters)[static_cast<std::size_t>(parameters_of[node][index])];
  }
  const std::string& NameOf(int node) const { return network->nodes[node].config.name; }

 private:
  Tensor Describe(int value, const TensorStorage& stored_as) const;  // without data
  Tensor View(int value, int buffer, const TensorStorage& stored_as) const;
};

// The lists of what a graph rounds, decides and shows (graph/graph.h) are in the order of an
// unfused execution even where layers are fused, and are to be made after all ops. ListRoundings
// returns all roundings, starting with the network's input (unless it is tokens); those of the
// forward pass only in a graph that does not train.
std::vector<RoundingPoint> ListRoundings(const Bindings& bindings);
std::vector<SumPoint> ListSums(const Bindings& bindings);
std::vector<SumPoint> ListJudgedSums(const Bindings& bindings);
std::vector<JudgedOperandPoint> ListJudgedOperands(const Bindings& bindings);
std::vector<ScalePoint> ListScales(const Bindings& bindings);
// Those of `roundings` that have a per-tensor scale, in the same order.
std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings);

// Which tensors are shown to an observer, and after which call, that is, when they are in memory.
// For graphs that do not train, `backward` is empty.
ObservationPlan ListObserved(const Bindings& bindings);

// --- Ops ---

// Collects tensors, gradients, statistics and parameters, from which the layer's kind makes the
// spec. Decides nothing about order or memory. The builder makes one for each plan that it tries.
// It only looks things up in `bindings`, which must outlive it; the ops it makes keep backend
// addresses only.
class OpMaker {
 public:
  OpMaker(const Bindings& bindings, backend::Backend& backend) : b_(bindings), backend_(backend) {}

  // Returns null if the backend declines this chain of layers, or this op as a chain's consumer.
  std::unique_ptr<backend::Op> Make(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBranchSum(int branch, const GraphSpec& graph);
  // The loss of the task.
  std::unique_ptr<backend::LossOp> MakeLoss(const GraphSpec& graph);
  std::unique_ptr<backend::InputOp> MakeInput(const Tensor& images);

 private:
  const Node& node(const OpPlan& op) const { return b_.network->nodes[op.node]; }
  // Collects the parts; the functions Add... fill in those that only some kinds have.
  layers::OpArguments PartsOf(const OpPlan& op) const;
  void AddWeight(const OpPlan& op, layers::OpArguments& parts) const;
  // The scales that inputs and dy were rounded with.
  void AddCarriedScales(const OpPlan& op, layers::OpArguments& parts) const;
  void AddSums(const OpPlan& op, layers::OpArguments& parts) const;
  void AddChain(const OpPlan& op, layers::OpArguments& parts) const;
  // Has no data where the op recomputes this input (OpPlan::recomputed).
  Tensor Input(const OpPlan& op, int index) const;
  layers::RoundedTo RoundedValue(int value) const;
  void AddAttention(const OpPlan& op, layers::OpArguments& parts) const;
  layers::RoundedTo RoundedOf(int node, const char* tensor, const TensorStorage& storage,
                              TensorStats LayerStats::*stats) const;
  // The recomputed norm of a batch norm whose chain ends in value `z`; the batch norm's op and the
  // consumer's op share it.
  backend::RecomputedNorm Recomputed(int batch_norm, int z) const;

  const Bindings& b_;
  backend::Backend& backend_;
};

// --- The builder ---

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
