// Finds chains greedily, from each batch norm to the longest one that its consumers and the limits
// allow.
#include "graph/plan/plan.h"

namespace ada::graph {
namespace {

using Consumers = std::vector<std::vector<int>>;

// The only consumer of node `index`'s output, or -1.
int OnlyConsumer(const Consumers& consumers, int index) {
  const std::vector<int>& all = consumers[index + 1];
  return all.size() == 1 ? all[0] : -1;
}

// Whether this is a node whose kind can have that role in a chain.
bool Plays(const Network& network, int node, layers::ChainPart part) {
  return node >= 0 && network.nodes[node].kind->chain == part;
}

// Whether the gradient of the mask's output has no other reader.
bool OwnsItsGradient(const Network& network, const Consumers& consumers, int mask) {
  const int consumer = OnlyConsumer(consumers, mask);
  return consumer < 0 || !network.nodes[consumer].kind->hands_gradient_on;
}

// Whether the gradient of `value` may be masked in place: if it goes into a branch sum, or to a
// layer that needs no moments. An addition would pass it on, so it does not qualify.
bool MayBeMasked(const Network& network, const Consumers& consumers, int value) {
  if (value == 0 || consumers[value].size() > 1) return true;
  const layers::LayerKind& producer = *network.nodes[value - 1].kind;
  return !producer.chooses_scale && producer.decisions.empty() && !producer.hands_gradient_on;
}

// Returns the longest chain from this batch norm: with the addition and the relu if possible. A
// relu that may not take part ends the chain before it.
Chain FindChain(const Network& network, const Consumers& consumers, const std::set<int>& taken,
                int batch_norm) {
  Chain chain;
  chain.batch_norm = batch_norm;
  int next = OnlyConsumer(consumers, batch_norm);
  if (Plays(network, next, layers::ChainPart::kSum) && network.nodes[next].inputs.size() == 2 &&
      !taken.count(next)) {
    chain.add = next;
    next = OnlyConsumer(consumers, next);
  }
  if (!Plays(network, next, layers::ChainPart::kMask) ||
      !OwnsItsGradient(network, consumers, next)) {
    return chain;
  }
  if (chain.add >= 0) {
    const std::vector<int>& inputs = network.nodes[chain.add].inputs;
    const int addend = inputs[0] == batch_norm + 1 ? inputs[1] : inputs[0];
    if (!MayBeMasked(network, consumers, addend)) return chain;
  }
  chain.relu = next;
  return chain;
}

// The conv2d, conv_transpose2d or linear layer that is the only reader of the chain's output; -1:
// there is none.
int FindConsumer(const Network& network, const Consumers& consumers, const Chain& chain) {
  const int consumer = OnlyConsumer(consumers, chain.last());
  return chain.add < 0 && consumer >= 0 && network.nodes[consumer].kind->has_weight ? consumer : -1;
}

}  // namespace

std::vector<Chain> FindChains(const Network& network, const FusionLimits& limits) {
  Consumers consumers = network.Consumers();
  // The loss is a reader too; otherwise an output of the network could vanish in a chain.
  for (const int output : network.outputs) consumers[output].push_back(-1);  // the loss
  std::vector<Chain> chains;
  std::set<int> taken;  // additions that belong to a chain
  for (int i = 0; i < static_cast<int>(network.nodes.size()); ++i) {
    if (!Plays(network, i, layers::ChainPart::kNorm)) continue;
    Chain chain;
    chain.batch_norm = i;
    if (!limits.unchained.count(i)) chain = FindChain(network, consumers, taken, i);
    if (limits.recompute && !limits.stored.count(i)) {
      chain.consumer = FindConsumer(network, consumers, chain);
    }
    if (chain.last() == i && chain.consumer < 0) continue;
    if (chain.add >= 0) taken.insert(chain.add);
    chains.push_back(chain);
  }
  return chains;
}

}  // namespace ada::graph
