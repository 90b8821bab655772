// See fusion.h.
#include "graph/plan/fusion.h"

namespace ada::graph {
namespace {

using Consumers = std::vector<std::vector<int>>;

// The only consumer of node `index`'s output, or -1.
int OnlyConsumer(const Consumers& consumers, int index) {
  const std::vector<int>& all = consumers[index + 1];
  return all.size() == 1 ? all[0] : -1;
}

bool OwnsItsGradient(const Network& network, const Consumers& consumers, int relu) {
  const int consumer = OnlyConsumer(consumers, relu);
  return consumer < 0 || network.nodes[consumer].kind != Kind::kAdd;
}

// Whether the gradient of `value` may be one that was masked in place: it goes into a branch sum or
// to a layer that asks for no moments. An addition would pass it on, so it counts as asking.
bool MayBeMasked(const Network& network, const Consumers& consumers, int value) {
  if (value == 0 || consumers[value].size() > 1) return true;
  const Node& producer = network.nodes[value - 1];
  return !producer.has_rule() && producer.kind != Kind::kAdd;
}

Chain FindChain(const Network& network, const Consumers& consumers, const std::set<int>& taken,
                int batch_norm) {
  Chain chain;
  chain.batch_norm = batch_norm;
  int next = OnlyConsumer(consumers, batch_norm);
  if (next >= 0 && network.nodes[next].kind == Kind::kAdd &&
      network.nodes[next].inputs.size() == 2 && !taken.count(next)) {
    chain.add = next;
    next = OnlyConsumer(consumers, next);
  }
  const bool is_relu = next >= 0 && network.nodes[next].kind == Kind::kRelu;
  if (!is_relu || !OwnsItsGradient(network, consumers, next)) return chain;
  if (chain.add >= 0) {
    const std::vector<int>& inputs = network.nodes[chain.add].inputs;
    const int addend = inputs[0] == batch_norm + 1 ? inputs[1] : inputs[0];
    if (!MayBeMasked(network, consumers, addend)) return chain;
  }
  chain.relu = next;
  return chain;
}

int FindConsumer(const Network& network, const Consumers& consumers, const Chain& chain) {
  const int consumer = OnlyConsumer(consumers, chain.last());
  return chain.add < 0 && consumer >= 0 && network.nodes[consumer].is_product() ? consumer : -1;
}

}  // namespace

std::vector<Chain> FindChains(const Network& network, const FusionLimits& limits) {
  const Consumers consumers = network.Consumers();
  std::vector<Chain> chains;
  std::set<int> taken;  // additions that belong to a chain
  for (int i = 0; i < static_cast<int>(network.nodes.size()); ++i) {
    if (network.nodes[i].kind != Kind::kBatchNorm) continue;
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
