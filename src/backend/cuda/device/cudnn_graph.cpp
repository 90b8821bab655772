// The graphs of products; see cudnn_plans.h.
#include <array>
#include <vector>

#include "backend/cuda/device/cudnn_plans.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::DataType_t TypeOf(Storage storage) {
  return storage == Storage::kF32   ? fe::DataType_t::FLOAT
         : storage == Storage::kF16 ? fe::DataType_t::HALF
                                    : fe::DataType_t::BFLOAT16;
}

fe::DataType_t TypeOf(const MatmulRequest& r, std::size_t operand) {
  return r.codes[operand] == Fp8::kNone   ? TypeOf(r.operands)
         : r.codes[operand] == Fp8::kE4M3 ? fe::DataType_t::FP8_E4M3
                                          : fe::DataType_t::FP8_E5M2;
}

// Dimensions are n, c, h, w whatever the memory's order is; strides say that it is NHWC.
void SetLayout(fe::graph::Tensor_attributes& tensor, const TensorLayout& layout) {
  tensor.set_dim({layout.dims.begin(), layout.dims.end()})
      .set_stride({layout.strides.begin(), layout.strides.end()});
}

TensorPointer Input(Graph& graph, TensorId id, const char* name, const TensorLayout& layout,
                    fe::DataType_t type) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_uid(id).set_name(name).set_data_type(type);
  SetLayout(tensor, layout);
  return graph.tensor(tensor);
}

// `attributes` of a convolution in any direction. After the image padding is what before it is;
// rows that no window reaches are left out by the size of y.
template <class Attributes>
Attributes Window(const MatmulGeometry& g) {
  const auto pair = [](const std::array<int, 2>& p) {
    return std::vector<std::int64_t>{p[0], p[1]};
  };
  Attributes attributes;
  attributes.set_pre_padding(pair(g.padding)).set_post_padding(pair(g.padding));
  attributes.set_stride(pair(g.stride)).set_dilation(pair(g.dilation));
  return attributes;
}

TensorPointer Convolve(Graph& graph, const MatmulRequest& r, const TensorPointer& first,
                       const TensorPointer& second) {
  const MatmulGeometry& g = r.geometry;
  switch (r.kind) {
    case MatmulKind::kForward:
      return graph.conv_fprop(first, second, Window<fe::graph::Conv_fprop_attributes>(g));
    case MatmulKind::kData:
      return graph.conv_dgrad(first, second, Window<fe::graph::Conv_dgrad_attributes>(g));
    case MatmulKind::kWeights:
      return graph.conv_wgrad(second, first, Window<fe::graph::Conv_wgrad_attributes>(g));
  }
  throw InternalError("a product of no kind");
}

}  // namespace

// A graph is one convolution and, with an epilogue, a multiplication of its fp32 sums.
std::shared_ptr<Graph> GraphOf(const MatmulRequest& r) {
  auto graph = std::make_shared<Graph>();
  graph->set_compute_data_type(fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_io_data_type(TypeOf(r, 0));
  const MatmulShapes shapes = ShapesOf(r);
  const TensorLayout layout = LayoutOf(shapes.out);
  const TensorPointer first = Input(*graph, kFirst, "first", LayoutOf(shapes.first), TypeOf(r, 0));
  const TensorPointer second =
      Input(*graph, kSecond, "second", LayoutOf(shapes.second), TypeOf(r, 1));
  TensorPointer out = Convolve(*graph, r, first, second);
  SetLayout(*out, layout);
  if (HasEpilogue(r)) {
    fe::graph::Tensor_attributes scale;
    scale.set_uid(kScale).set_name("scale").set_data_type(fe::DataType_t::FLOAT).set_alignment(4);
    SetLayout(scale, {{1, 1, 1, 1}, {1, 1, 1, 1}});
    const auto times = fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::MUL);
    out = graph->pointwise(out, graph->tensor(scale), times);
    SetLayout(*out, layout);
  }
  out->set_output(true).set_uid(kOut).set_name("out").set_data_type(TypeOf(r.out));
  return graph;
}

}  // namespace ada::backend::cuda
