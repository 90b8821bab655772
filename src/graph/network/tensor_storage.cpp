// Chooses formats and storage node by node from those of their inputs, and sums up the sizes of all
// tensors.
#include "graph/network/tensor_storage.h"

#include <algorithm>

#include "error.h"
#include "io/text.h"
#include "number/table_grid.h"

namespace ada::graph {
namespace {

// By value: whether torch stores it in fp32. Layers come in order, so inputs are known already.
std::vector<bool> IsWide(const Network& network, bool on_cpu) {
  std::vector<bool> wide = {true};
  for (const Node& node : network.nodes) {
    const bool reads_wide = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return wide[static_cast<std::size_t>(input)];
    });
    const bool low = node.kind->autocasts_low();
    const bool listed = on_cpu ? node.kind->autocast_cpu_fp32 : node.kind->autocast_fp32;
    wide.push_back(!low && (listed || reads_wide));
  }
  return wide;
}

// Whether only matmuls read a value, directly or through layers that only move values. Goes from
// the last value to the first: a layer that only moves values has the readers of its output.
std::vector<bool> AreForMatmuls(const Network& network) {
  const auto consumers = network.Consumers();
  std::vector<bool> all(consumers.size());
  for (std::size_t value = consumers.size(); value-- > 0;) {
    const std::vector<int>& readers = consumers[value];
    const bool for_loss = network.IsOutput(static_cast<int>(value));
    all[value] = !readers.empty() && !for_loss &&
                 std::all_of(readers.begin(), readers.end(), [&](int reader) {
                   const Node& node = network.nodes[static_cast<std::size_t>(reader)];
                   return node.kind->autocasts_low() ||
                          (!node.rounds_output() && all[static_cast<std::size_t>(reader) + 1]);
                 });
  }
  return all;
}

}  // namespace

std::vector<LayerFormats> AutocastFormats(const Network& network, const NumberFormat& low,
                                          bool on_cpu) {
  const std::vector<bool> wide = IsWide(network, on_cpu), for_products = AreForMatmuls(network);
  std::vector<LayerFormats> formats;
  for (std::size_t value = 0; value < wide.size(); ++value) {
    const NumberFormat& format = wide[value] && !for_products[value] ? kFp32 : low;
    formats.push_back({format, low, wide[value] ? kFp32 : low, kFp32, format});
  }
  return formats;
}

namespace {

// A scale would save nothing in an fp32 tensor, so it has none. A scale computed from earlier steps
// puts the past largest magnitude at the format's end, and the next one may be larger: such a
// tensor saturates, as Transformer Engine's casts do, unless the configuration says otherwise.
// Under delayed scaling values times the scale are rounded to the format and then divided by the
// scale again, which the format itself could not hold: they are stored in fp32.
TensorStorage StoredAs(NumberFormat format, bool scaled, bool saturates) {
  const bool has_per_tensor_scale = scaled && format != kFp32;
  if (has_per_tensor_scale && saturates) format.saturate = true;
  return {format, has_per_tensor_scale ? Storage::kF32 : StorageFor(format), has_per_tensor_scale};
}

// Goes from the last value to the first, so that what a consumer passes on is known before the
// value that it reads.
std::vector<TensorStorage> Arriving(const Network& network, const NetworkStorage& storage) {
  const auto consumers = network.Consumers();
  const std::map<int, AttentionStorage>& attention = storage.attention;
  std::vector<TensorStorage> arriving = storage.gradients;
  for (std::size_t value = network.nodes.size(); value-- > 0;) {
    const std::vector<int>& after = consumers[value];
    if (after.size() != 1 || network.IsOutput(static_cast<int>(value))) continue;  // a sum
    const Node& reader = network.nodes[after[0]];
    // The joined gradient of a fused input has the format of the layer that made it.
    if (!reader.rounds_gradient())
      arriving[value] = arriving[after[0] + 1];
    else if (!attention.contains(after[0]))
      arriving[value] = storage.GradientFrom(reader, static_cast<int>(value));
    else if (reader.inputs.size() > 1)
      arriving[value] = attention.at(after[0]).gradients;
  }
  return arriving;
}

}  // namespace

NetworkStorage ResolveStorage(const Network& network, const Precision& precision) {
  NetworkStorage result;
  std::vector<LayerFormats> autocast;  // by value
  if (precision.autocast)
    autocast = AutocastFormats(network, *precision.autocast, precision.autocast_on_cpu);
  const auto forward = [&](const NumberFormat& format) {
    return StoredAs(format, precision.scaled_forward, precision.scaled_saturate);
  };
  const auto backward = [&](const NumberFormat& format) {
    return StoredAs(format, precision.scaled_backward, precision.scaled_saturate);
  };
  int product = 0;  // of the layers with weights
  const auto products =
      static_cast<int>(std::count_if(network.nodes.begin(), network.nodes.end(),
                                     [](const Node& node) { return node.kind->has_weight; }));
  // Entries of precision.layers reach layers by their names, and the network's input by its own.
  const auto formats_at = [&](const std::string& name) {
    return !autocast.empty()      ? precision.formats_from(name, autocast[result.values.size()])
           : precision.formats_of ? precision.formats_of(name)
                                  : precision.base;
  };
  const LayerFormats input = formats_at(kInputName);
  result.values.push_back(forward(input.activations));
  result.gradients.push_back(backward(input.gradients));
  const auto of_products = [&](const LayerFormats& formats) {
    return backward(formats.product_gradients.value_or(formats.gradients));
  };
  result.product_gradients.push_back(of_products(input));
  for (const Node& node : network.nodes) {
    const LayerFormats formats = formats_at(node.config.name);
    if (node.rounds_output()) {
      result.values.push_back(forward(formats.activations));
      result.gradients.push_back(backward(formats.gradients));
      result.product_gradients.push_back(of_products(formats));
    } else {
      for (auto* by_value : {&result.values, &result.gradients, &result.product_gradients}) {
        const TensorStorage moved = (*by_value)[node.inputs[0]];
        by_value->push_back(moved);
      }
    }
    if (!node.kind->decisions.empty()) {
      AttentionStorage within;
      within.p = forward(formats.activations);
      within.ds = within.gradients = backward(formats.gradients);
      within.rounds_p = !(formats.wide_probabilities.value_or(node.config.probabilities == "fp32"));
      within.rounds_ds =
          !(formats.wide_score_gradients.value_or(node.config.score_gradients == "fp32"));
      result.attention[static_cast<int>(result.weights.size())] = within;
    }
    result.weights.push_back(forward(formats.weights));
    result.weight_gradients.push_back({formats.weight_gradients, Storage::kF32, false});
    result.operands.emplace_back();
    result.accumulators.emplace_back();
    // The first and last products of the network (precision.operands.spared) take operands as they
    // are stored, unless precision.layers says otherwise. Tied layers count as products of their
    // own.
    const auto is_spared = [&](const config::SparedConfig& of) {
      return product < of.first || product >= products - of.last;
    };
    const bool attends = !node.kind->decisions.empty();
    if (precision.accumulators_of && (node.kind->has_weight || attends))
      result.accumulators.back() =
          precision.accumulators_of(node.config.name, !attends && is_spared(precision.spared_sums));
    LayerOperands& operands = result.operands.back();
    if (precision.operands_of)
      operands = precision.operands_of(node.config.name, !attends && is_spared(precision.spared));
    if (!node.kind->has_weight) operands.rules = {};
    if (!attends) operands.attention = {};
    if (node.kind->has_weight) ++product;
  }
  result.arriving = Arriving(network, result);
  return result;
}

namespace {

// Doubles hold sums of sizes that would overflow any 64-bit integer.
constexpr double kMostBytes = 0x1p42;  // 4 TiB

double Values(const Shape& shape) {
  return static_cast<double>(shape.n) * static_cast<double>(shape.h) *
         static_cast<double>(shape.w) * static_cast<double>(shape.c);
}

// storage: null: all in fp32. Parameters (fp32 masters) and outputs, largest first, without
// gradients and what ops keep.
std::vector<TensorSize> TensorSizes(const Network& network, const NetworkStorage* storage,
                                    std::int64_t images) {
  std::vector<TensorSize> sizes;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    for (const layers::ParameterSpec& p : node.parameters)
      sizes.push_back({node.config.name + "." + p.name, Values(p.shape) * sizeof(float)});
    const Storage kept = storage != nullptr ? storage->values[i + 1].storage : Storage::kF32;
    sizes.push_back({node.config.name + ".y", Values(node.output) * static_cast<double>(images) *
                                                  static_cast<double>(BytesOf(kept))});
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const TensorSize& a, const TensorSize& b) { return a.bytes > b.bytes; });
  return sizes;
}

}  // namespace

std::vector<TensorSize> LargestTensors(const GraphSpec& spec, std::size_t count) {
  const Network network = Resolve(*spec.model, spec.input, spec.task);
  const NetworkStorage storage = ResolveStorage(network, spec.precision);
  std::vector<TensorSize> sizes = TensorSizes(network, &storage, spec.input.n);
  sizes.resize(std::min(sizes.size(), count));
  return sizes;
}

void RefuseHuge(const Network& network, std::int64_t images, const Location& where) {
  const std::vector<TensorSize> sizes = TensorSizes(network, nullptr, images);
  double bytes = 0;
  for (const TensorSize& size : sizes) bytes += size.bytes;
  if (bytes <= kMostBytes) return;
  throw ConfigError(PlacePrefix(where) + "model: its tensors would take " +
                    HumanBytes(static_cast<std::uint64_t>(std::min(bytes, 0x1p63))) +
                    ", expected at most " + HumanBytes(static_cast<std::uint64_t>(kMostBytes)) +
                    "; the largest is " + sizes.front().name + " with " +
                    HumanBytes(static_cast<std::uint64_t>(sizes.front().bytes)));
}

void RefuseOutputsBeyond(std::int64_t most_values, const Network& network, std::int64_t images) {
  for (const Node& node : network.nodes) {
    const double values = Values(node.output) * static_cast<double>(images);
    if (values <= static_cast<double>(most_values)) continue;
    throw ConfigError(PlacePrefix(node.config.where) + "layer " + node.config.name +
                      ": its output has " + Formatted("%.3g", values) +
                      " values in a batch, more than the " + std::to_string(most_values) +
                      " that this device's kernels number; take a smaller data.batch_size or a "
                      "larger train.accumulate");
  }
}

void RefuseSumsWithoutExponents(const NumberFormat& format, const std::string& layer) {
  if (format.table == 0 || TableGridAt(format.table).has_exponents) return;
  throw ConfigError("precision.accumulate: layer " + layer + ": values in " + FormatName(format) +
                    " have no exponents that an accumulator could align; round operands to a "
                    "signed format of {exponent, mantissa}, or leave the key out");
}

namespace {

// What each product with an accumulator takes: its operands, or what is stored where these are not
// rounded once more.
void RefuseSums(const Network& network, const NetworkStorage& storage, std::size_t i) {
  const Node& node = network.nodes[i];
  const auto& sums = storage.accumulators[i];
  const auto refuse = [&](const NumberFormat& format) {
    RefuseSumsWithoutExponents(format, node.config.name);
  };
  const auto stored = [&](Operand operand) {
    if (IsWeight(operand)) return storage.weights[i].format;
    const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
    return is_x ? storage.values[static_cast<std::size_t>(node.inputs[0])].format
                : storage.arriving[i + 1].format;
  };
  for (std::size_t k = 0; k < kOperands; ++k) {
    if (!sums[k / 2]) continue;  // each product has two operands
    const OperandRule& rule = storage.operands[i].rules[k];
    refuse(rule.rounds ? rule.format : stored(static_cast<Operand>(k)));
  }
  const auto attention = storage.attention.find(static_cast<int>(i));
  if (attention == storage.attention.end() ||
      std::none_of(sums.begin(), sums.end(), [](const auto& sum) { return sum.has_value(); }))
    return;
  for (const int input : node.inputs)
    refuse(storage.values[static_cast<std::size_t>(input)].format);
  for (const OperandRule& rule : storage.operands[i].attention)
    if (rule.rounds) refuse(rule.format);
  if (attention->second.rounds_p) refuse(attention->second.p.format);
}

}  // namespace

void RefuseTables(const Network& network, const NetworkStorage& storage, bool has_tables) {
  const auto check = [&](const NumberFormat& format, const std::string& layer) {
    if (format.table == 0 || has_tables) return;
    throw ConfigError("precision: layer " + layer + ": " + FormatName(format) +
                      ", or its rounding mode, is not built for CUDA; choose a format of "
                      "{exponent, mantissa} with rounding nearest or stochastic and overflow "
                      "default, format or saturate, or train on the CPU (device: cpu)");
  };
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const std::string& layer = network.nodes[i].config.name;
    check(storage.values[0].format, "input");
    for (const TensorStorage& stored :
         {storage.values[i + 1], storage.gradients[i + 1], storage.product_gradients[i + 1],
          storage.arriving[i + 1], storage.weights[i], storage.weight_gradients[i]})
      check(stored.format, layer);
    for (const OperandRule& rule : storage.operands[i].rules) check(rule.format, layer);
    RefuseSums(network, storage, i);
  }
}

}  // namespace ada::graph
