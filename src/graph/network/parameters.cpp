// Takes memory for the parameters that the nodes of a network list; initialize.cpp fills them.
#include "graph/network/parameters.h"

#include "error.h"
#include "graph/network/shapes.h"

namespace ada::graph {
namespace {

// Parameters of one network, layer by layer: MakeParameters calls AddLayer in layer order, which
// fixes the indices of Graph::parameters.
class ParameterMaker {
 public:
  ParameterMaker(bool training, backend::Backend& backend, const std::vector<Parameter>* share)
      : training_(training), backend_(backend), share_(share) {}

  // If a graph shares its parameters, they are looked up in the same order; a different name or
  // shape would be a bug, because both graphs come from one model.
  void Add(const config::LayerConfig& layer, const layers::ParameterSpec& spec) {
    Parameter parameter{NameOf(layer, spec), spec.dims, {}, {}, spec.start, layer.start_factor};
    parameter.value.shape = spec.shape;
    parameter.layer = layer.name;
    parameter.part = spec.name.empty() ? "weight" : spec.name;
    if (share_) {
      const std::vector<Parameter>& others = *share_;
      const std::size_t index = result_.all.size();
      ADA_CHECK(index < others.size() && others[index].name == parameter.name &&
                others[index].dims == parameter.dims);
      parameter.value = others[index].value;
    } else {
      parameter.value.data = backend_.Allocate(parameter.value.bytes());
    }
    if (spec.trained && training_) {
      parameter.gradient = parameter.value;
      parameter.gradient.data = backend_.Allocate(parameter.gradient.bytes());
    }
    result_.all.push_back(std::move(parameter));
  }

  void AddLayer(const Node& node) {
    std::vector<int>& mine = result_.of.emplace_back();
    // The owner comes earlier, so its index is known. A tied weight is named "weight" whatever its
    // owner's kind is.
    if (node.tied_to >= 0) {
      mine.push_back(result_.of[node.tied_to].front());
      Parameter& tied = result_.all[mine.front()];
      tied.other_names.push_back(NameOf(node.config, {"weight", {}, {}}));
      tied.tied_layers.push_back(node.config.name);
    }
    for (const layers::ParameterSpec& spec : node.parameters) {
      mine.push_back(static_cast<int>(result_.all.size()));
      Add(node.config, spec);
    }
  }

  NetworkParameters Take() { return std::move(result_); }

 private:
  // An empty name of the spec says that the parameter is called as the layer is (class_token).
  static std::string NameOf(const config::LayerConfig& layer, const layers::ParameterSpec& spec) {
    if (spec.name.empty()) return layer.name;
    return (layer.parameter_prefix.empty() ? layer.name + "." : layer.parameter_prefix) + spec.name;
  }

  const bool training_;
  backend::Backend& backend_;
  const std::vector<Parameter>* share_;
  NetworkParameters result_;
};

}  // namespace

std::int64_t Parameter::numel() const { return value.shape.numel(); }

NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const std::vector<Parameter>* share) {
  ParameterMaker maker(training, backend, share);
  for (const Node& node : network.nodes) maker.AddLayer(node);
  return maker.Take();
}

}  // namespace ada::graph
