// See parameters.h.
#include "graph/network/parameters.h"

#include "core/error.h"

namespace ada::graph {
namespace {

using Dims = std::vector<std::int64_t>;

class ParameterMaker {
 public:
  ParameterMaker(bool training, backend::Backend& backend, const Graph* share)
      : training_(training), backend_(backend), share_(share) {}

  void Add(const std::string& name, Dims dims, const Shape& shape, bool trained = true) {
    Parameter parameter{name, std::move(dims), {}, {}};
    parameter.value.shape = shape;
    if (share_) {
      const std::vector<Parameter>& others = share_->parameters();
      const std::size_t index = result_.all.size();
      ADA_CHECK(index < others.size() && others[index].name == name &&
                others[index].dims == parameter.dims);
      parameter.value = others[index].value;
    } else {
      parameter.value.data = backend_.Allocate(parameter.value.bytes());
    }
    if (trained && training_) {
      parameter.gradient = parameter.value;
      parameter.gradient.data = backend_.Allocate(parameter.gradient.bytes());
    }
    result_.all.push_back(std::move(parameter));
  }

  void AddLayer(const Node& node) {
    const config::LayerConfig& layer = node.config;
    result_.first.push_back(static_cast<int>(result_.all.size()));
    const std::int64_t out = node.output.c;
    const Shape vector{1, 1, 1, out};
    if (node.kind == Kind::kConv2d) {
      const std::int64_t in = node.input.c / layer.groups;
      Add(layer.name + ".weight", {out, in, layer.kernel[0], layer.kernel[1]},
          {out, layer.kernel[0], layer.kernel[1], in});
    } else if (node.kind == Kind::kLinear) {
      Add(layer.name + ".weight", {out, node.input.numel()},
          {out, node.input.h, node.input.w, node.input.c});
    } else if (node.kind == Kind::kBatchNorm) {
      Add(layer.name + ".weight", {out}, vector);
      Add(layer.name + ".bias", {out}, vector);
      Add(layer.name + ".running_mean", {out}, vector, false);
      Add(layer.name + ".running_var", {out}, vector, false);
    }
    if (node.is_product() && layer.bias) Add(layer.name + ".bias", {out}, vector);
  }

  NetworkParameters Take() { return std::move(result_); }

 private:
  const bool training_;
  backend::Backend& backend_;
  const Graph* share_;
  NetworkParameters result_;
};

}  // namespace

NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const Graph* share) {
  ParameterMaker maker(training, backend, share);
  for (const Node& node : network.nodes) maker.AddLayer(node);
  return maker.Take();
}

}  // namespace ada::graph
