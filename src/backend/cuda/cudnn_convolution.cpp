// See cudnn_convolution.h. The only file that includes cudnn-frontend.
#include "backend/cuda/cudnn_convolution.h"

#include <cudnn_frontend.h>

#include <exception>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ada::backend::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using TensorPointer = std::shared_ptr<fe::graph::Tensor_attributes>;

// Plans that want more memory than this are passed over.
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30;

enum TensorId : std::int64_t { kFirst = 1, kSecond, kOut, kScale };

fe::DataType_t TypeOf(Storage storage) {
  return storage == Storage::kF32   ? fe::DataType_t::FLOAT
         : storage == Storage::kF16 ? fe::DataType_t::HALF
                                    : fe::DataType_t::BFLOAT16;
}

void SetLayout(fe::graph::Tensor_attributes& tensor, const TensorLayout& layout) {
  tensor.set_dim({layout.dims.begin(), layout.dims.end()})
      .set_stride({layout.strides.begin(), layout.strides.end()});
}

TensorPointer Input(Graph& graph, TensorId id, const char* name, const TensorLayout& layout,
                    Storage storage) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_uid(id).set_name(name).set_data_type(TypeOf(storage));
  SetLayout(tensor, layout);
  return graph.tensor(tensor);
}

// `attributes` of a convolution in any direction. Behind the image padding is what before it is;
// rows that no window reaches are left out by the size of y.
template <class Attributes>
Attributes Window(const ProductGeometry& g) {
  const auto pair = [](const std::array<int, 2>& p) {
    return std::vector<std::int64_t>{p[0], p[1]};
  };
  Attributes attributes;
  attributes.set_pre_padding(pair(g.padding)).set_post_padding(pair(g.padding));
  attributes.set_stride(pair(g.stride)).set_dilation(pair(g.dilation));
  return attributes;
}

struct Shapes {
  Shape first, second, out;
};
Shapes ShapesOf(const ProductRequest& r) {
  const ProductGeometry& g = r.geometry;
  if (r.kind == ProductKind::kForward) return {g.x, g.w, g.y};
  if (r.kind == ProductKind::kData) return {g.y, g.w, g.x};
  return {g.x, g.y, g.w};
}

TensorPointer Convolve(Graph& graph, const ProductRequest& r, const TensorPointer& first,
                       const TensorPointer& second) {
  const ProductGeometry& g = r.geometry;
  switch (r.kind) {
    case ProductKind::kForward:
      return graph.conv_fprop(first, second, Window<fe::graph::Conv_fprop_attributes>(g));
    case ProductKind::kData:
      return graph.conv_dgrad(first, second, Window<fe::graph::Conv_dgrad_attributes>(g));
    case ProductKind::kWeights:
      return graph.conv_wgrad(second, first, Window<fe::graph::Conv_wgrad_attributes>(g));
  }
  throw InternalError("a product of no kind");
}

std::shared_ptr<Graph> GraphOf(const ProductRequest& r) {
  auto graph = std::make_shared<Graph>();
  graph->set_compute_data_type(fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_io_data_type(TypeOf(r.operands));
  const Shapes shapes = ShapesOf(r);
  const TensorPointer first = Input(*graph, kFirst, "first", LayoutOf(shapes.first), r.operands);
  const TensorPointer second =
      Input(*graph, kSecond, "second", LayoutOf(shapes.second), r.operands);
  TensorPointer out = Convolve(*graph, r, first, second);
  if (HasEpilogue(r)) {
    SetLayout(*out, LayoutOf(shapes.out));
    const TensorPointer scale =
        Input(*graph, kScale, "scale", {{1, 1, 1, 1}, {1, 1, 1, 1}}, Storage::kF32);
    out = graph->pointwise(out, scale,
                           fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::MUL));
  }
  SetLayout(*out, LayoutOf(shapes.out));
  out->set_output(true).set_uid(kOut).set_name("out").set_data_type(TypeOf(r.out));
  return graph;
}

// Numbers that differ from exact products with fp32 sums by more than an order of additions are not
// wanted, on fp32 operands TF32 neither.
std::vector<fe::NumericalNote_t> Unwanted(const ProductRequest& r, bool deterministic) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes = {Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION,
                             Note::FFT, Note::WINOGRAD};
  if (r.operands == Storage::kF32) notes.push_back(Note::TENSOR_CORE);
  if (deterministic) notes.push_back(Note::NONDETERMINISTIC);
  return notes;
}

class Convolution final : public Product {
 public:
  Convolution(const CudnnContext& context, const ProductRequest& request,
              std::shared_ptr<Graph> graph)
      : context_(context), scaled_(HasEpilogue(request)), graph_(std::move(graph)) {
    context_.workspace.Reserve(static_cast<std::size_t>(graph_->get_workspace_size()));
  }

  void Run(const ProductArguments& a) override {
    std::unordered_map<std::int64_t, void*> tensors = {{kFirst, const_cast<void*>(a.first)},
                                                       {kSecond, const_cast<void*>(a.second)},
                                                       {kOut, a.out}};
    if (scaled_) tensors[kScale] = const_cast<float*>(a.scale != nullptr ? a.scale : context_.one);
    fe::error_t status = graph_->execute(context_.handle, tensors, Workspace());
    if (status.is_bad()) throw DeviceError("cuDNN: " + status.get_message());
  }

 private:
  void* Workspace() const {
    return context_.workspace.bytes() == 0 ? nullptr : context_.workspace.data();
  }

  const CudnnContext& context_;
  bool scaled_;
  std::shared_ptr<Graph> graph_;
};

// Runs all plans on memory of their own and keeps the fastest.
bool Measure(const CudnnContext& context, const ProductRequest& r, Graph& graph) {
  const Shapes shapes = ShapesOf(r);
  const auto bytes = [](const Shape& shape, Storage storage) {
    return static_cast<std::size_t>(shape.numel()) * BytesOf(storage);
  };
  const std::array<std::size_t, 4> sizes = {
      bytes(shapes.first, r.operands), bytes(shapes.second, r.operands), bytes(shapes.out, r.out),
      static_cast<std::size_t>(graph.get_autotune_workspace_size())};
  std::array<std::byte*, 4> memory = {};
  const auto free = [&] {
    for (std::byte* block : memory)
      if (block != nullptr) context.stream.Free(block);
  };
  try {
    for (std::size_t i = 0; i < sizes.size(); ++i) memory[i] = context.stream.Allocate(sizes[i]);
    std::unordered_map<std::int64_t, void*> tensors = {
        {kFirst, memory[0]}, {kSecond, memory[1]}, {kOut, memory[2]}};
    if (HasEpilogue(r)) tensors[kScale] = const_cast<float*>(context.one);
    const bool good = graph.autotune(context.handle, tensors, memory[3]).is_good();
    context.stream.Synchronize();
    free();
    return good;
  } catch (...) {
    free();
    throw;
  }
}

std::shared_ptr<Graph> Plan(const CudnnContext& context, const ProductRequest& r) {
  std::shared_ptr<Graph> graph = GraphOf(r);
  if (graph->validate().is_bad() || graph->build_operation_graph(context.handle).is_bad() ||
      graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad())
    return nullptr;
  graph->deselect_numeric_notes(Unwanted(r, context.deterministic));
  graph->deselect_workspace_greater_than(kMostWorkspace);
  if (graph->check_support().is_bad()) return nullptr;
  const auto policy =
      context.autotune ? fe::BuildPlanPolicy_t::ALL : fe::BuildPlanPolicy_t::HEURISTICS_CHOICE;
  if (graph->build_plans(policy).is_bad()) return nullptr;
  if (context.autotune && !Measure(context, r, *graph)) return nullptr;
  return graph;
}

std::shared_ptr<Graph> FromCache(const CudnnContext& context, const std::string& key) {
  const auto plan = context.cache.Find(key);
  if (!plan) return nullptr;
  try {
    auto graph = std::make_shared<Graph>();
    if (graph->deserialize(context.handle, *plan).is_good()) return graph;
  } catch (const std::exception&) {  // its JSON parser throws
  }
  context.cache.Refuse(key);
  return nullptr;
}

}  // namespace

std::unique_ptr<Product> MakeConvolution(const CudnnContext& context,
                                         const ProductRequest& request) {
  const std::string key = KeyOf(request) + (context.autotune ? ", measured" : "") +
                          (context.deterministic ? ", deterministic" : "");
  std::shared_ptr<Graph> graph = FromCache(context, key);
  if (!graph) {
    graph = Plan(context, request);
    if (!graph) return nullptr;
    std::vector<std::uint8_t> plan;
    if (graph->serialize(plan).is_good()) context.cache.Store(key, plan);
  }
  return std::make_unique<Convolution>(context, request, std::move(graph));
}

}  // namespace ada::backend::cuda
