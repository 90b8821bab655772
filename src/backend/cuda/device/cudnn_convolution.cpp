// Convolutions as graphs of cuDNN, and the plans that run them; see cudnn_plans.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/device/cudnn_plans.h"
#include "backend/cuda/device/device_stream.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/matmul/plan_choice.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// A number whose code is twice this byte: 279 in fp16 (0x5c5c), 1.2e30 in bf16 (0x7171); with the
// signs of kSigns it is negative. One product of both lies below the range of the format.
constexpr int kLargeFp16 = 0x5c, kLargeBf16 = 0x71, kSigns = 0x80;
// As a code's bytes a number whose sums of products stay within all ranges: 0.53 in fp16, 4.4e-5 in
// bf16, 1 in fp8_e4m3, 0.5 in fp8_e5m2.
constexpr int kModest = 0x38;
constexpr std::size_t kMostLookedAt = 32768;  // bytes of the output

std::array<std::size_t, 3> SizesOf(const MatmulRequest& r) {
  const MatmulShapes shapes = ShapesOf(r);
  const auto bytes = [](const Shape& shape, std::size_t each) {
    return static_cast<std::size_t>(shape.numel()) * each;
  };
  return {bytes(shapes.first, OperandBytes(r)), bytes(shapes.second, OperandBytes(r)),
          bytes(shapes.out, BytesOf(r.out))};
}

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

// --- Plans ---

// Plans that want more memory than this are passed over.
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30;

// Numbers that differ from exact products with fp32 sums by more than an order of additions are not
// wanted, on fp32 operands TF32 neither.
std::vector<fe::NumericalNote_t> Unwanted(const MatmulRequest& r, bool deterministic) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes = {Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION,
                             Note::FFT, Note::WINOGRAD};
  if (r.operands == Storage::kF32 && !HasCodes(r)) notes.push_back(Note::TENSOR_CORE);
  if (deterministic) notes.push_back(Note::NONDETERMINISTIC);
  return notes;
}

// The workspace is shared by all plans of one stream, which run one after the other.
class Convolution final : public Matmul {
 public:
  Convolution(const CudnnContext& context, const MatmulRequest& request,
              std::shared_ptr<Graph> graph)
      : context_(context), scaled_(HasEpilogue(request)), graph_(std::move(graph)) {
    context_.workspace.Reserve(static_cast<std::size_t>(graph_->get_workspace_size()));
  }

  void Run(const MatmulArguments& a) override {
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

// Plans that are measured, in the order of PlansToBuild: cuDNN 9.19 has at most 9 engines for a
// product. Each takes a while to build.
constexpr int kMostMeasured = 12;

PlanChoice ChoiceOf(const CudnnContext& context, const MatmulRequest& request) {
  return {context.autotune, context.skip, NeedsSm90(request)};
}

std::vector<std::string> PlanNames(const Graph& graph) {
  std::vector<std::string> names(static_cast<std::size_t>(graph.get_execution_plan_count()));
  for (std::size_t i = 0; i < names.size(); ++i)
    if (graph.get_plan_name_at_index(static_cast<std::int64_t>(i), names[i]).is_bad())
      names[i].clear();
  return names;
}

bool Rounds(const MatmulRequest& r) { return r.out != Storage::kF32 && !HasCodes(r); }
// Whether the plan does more than add up products, which is tried before it is taken.
bool IsTried(const MatmulRequest& r) { return r.scale || Rounds(r); }

// What the plan that was built last does wrong; "": nothing.
std::string FaultOf(const CudnnContext& context, const MatmulRequest& r, Graph& graph) {
  if (!IsTried(r)) return "";
  PlanTrial trial(context, r, graph);
  if (Rounds(r) && !trial.KeepsOverflow()) return "gives no -inf";
  return r.scale && !trial.Multiplies() ? "leaves out the scale" : "";
}

// Null if cuDNN has no engine for the matmul, or none that is wanted.
std::shared_ptr<Graph> Supported(const CudnnContext& context, const MatmulRequest& r) {
  std::shared_ptr<Graph> graph = GraphOf(r);
  if (graph->validate().is_bad() || graph->build_operation_graph(context.handle).is_bad() ||
      graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_bad())
    return nullptr;
  graph->deselect_numeric_notes(Unwanted(r, context.deterministic));
  graph->deselect_workspace_greater_than(kMostWorkspace);
  return graph->check_support().is_good() ? graph : nullptr;
}

// Builds the first `most` of the plans that can be built; the graph runs the last of them. Engines
// that do something wrong are added to `unsound`, whose plans are not built.
bool BuildSome(const CudnnContext& context, const MatmulRequest& r, int most, Graph& graph,
               std::vector<std::string>& unsound) {
  const std::vector<std::string> names = PlanNames(graph);
  int built = 0;
  for (const int plan : PlansToBuild(names, ChoiceOf(context, r))) {
    const std::string engine = EngineOf(names[static_cast<std::size_t>(plan)]);
    if (std::find(unsound.begin(), unsound.end(), engine) != unsound.end()) continue;
    if (graph.build_plan_at_index(context.handle, plan).is_bad()) continue;
    if (const std::string fault = FaultOf(context, r, graph); !fault.empty()) {
      unsound.push_back(engine);
      context.diagnostics.push_back("cuDNN's " + engine + " " + fault + " for the " + Describe(r) +
                                    " (" + KeyOf(r) + "): passed over");
      continue;
    }
    if (++built == most) break;
  }
  return built > 0;
}

// All plans that are built are measured: where an unsound one is among them, all are built again.
std::shared_ptr<Graph> Plan(const CudnnContext& context, const MatmulRequest& r) {
  std::vector<std::string> unsound;
  for (;;) {
    const std::shared_ptr<Graph> graph = Supported(context, r);
    const std::size_t known = unsound.size();
    if (graph == nullptr ||
        !BuildSome(context, r, context.autotune ? kMostMeasured : 1, *graph, unsound))
      return nullptr;
    if (!context.autotune) return graph;
    if (unsound.size() == known)
      return PlanTrial(context, r, *graph).KeepFastest() ? graph : nullptr;
  }
}

// A plan that cuDNN refuses is planned anew and stored over.
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

PlanTrial::PlanTrial(const CudnnContext& context, const MatmulRequest& request,
                     cudnn_frontend::graph::Graph& graph)
    : context_(context),
      stored_(request.out),
      graph_(graph),
      bytes_(SizesOf(request)),
      blocks_{Allocate(bytes_[0]), Allocate(bytes_[1]), Allocate(bytes_[2])},
      workspace_(Allocate(static_cast<std::size_t>(
          std::max(graph.get_autotune_workspace_size(), graph.get_workspace_size())))),
      tensors_{{kFirst, blocks_[0].get()}, {kSecond, blocks_[1].get()}, {kOut, blocks_[2].get()}} {
  if (HasEpilogue(request)) tensors_[kScale] = const_cast<float*>(context.one);
}

PlanTrial::Block PlanTrial::Allocate(std::size_t bytes) const {
  return {context_.stream.Allocate(bytes), Free{&context_.stream}};
}

void PlanTrial::Fill(const Block& block, int byte, std::size_t bytes) const {
  CheckCuda(cudaMemsetAsync(block.get(), byte, bytes, context_.stream.handle()), "filling memory");
}

bool PlanTrial::KeepFastest() {
  const bool good = graph_.autotune(context_.handle, tensors_, workspace_.get()).is_good();
  context_.stream.Synchronize();
  return good;
}

// Waits for the device: a trial is part of planning.
std::vector<float> PlanTrial::Run() {
  Fill(blocks_[2], 0, bytes_[2]);
  if (graph_.execute(context_.handle, tensors_, workspace_.get()).is_bad()) return {};
  std::vector<std::byte> stored(std::min(bytes_[2], kMostLookedAt));
  context_.stream.CopyToHost(stored.data(), blocks_[2].get(), stored.size());
  context_.stream.Synchronize();
  const TensorSpan span{stored.data(), stored_};
  std::vector<float> out(stored.size() / BytesOf(stored_));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = Load(span, static_cast<std::int64_t>(i));
  return out;
}

// A single product is already below the range of the format, so every sum is.
bool PlanTrial::KeepsOverflow() {
  const bool fp16 = stored_ == Storage::kF16;
  const int large = fp16 ? kLargeFp16 : kLargeBf16;
  Fill(blocks_[0], large, bytes_[0]);
  Fill(blocks_[1], large | kSigns, bytes_[1]);
  const std::vector<float> out = Run();
  return std::find(out.begin(), out.end(), -INFINITY) != out.end();
}

// Twice a sum is exact; an output of zeros alone would prove nothing.
bool PlanTrial::Multiplies() {
  for (const std::size_t operand : {0, 1}) Fill(blocks_[operand], kModest, bytes_[operand]);
  const std::vector<float> once = Run();
  tensors_[kScale] = const_cast<float*>(context_.two);
  const std::vector<float> twice = Run();
  bool any = false;
  for (std::size_t i = 0; i < once.size() && i < twice.size(); ++i) {
    if (twice[i] != 2 * once[i]) return false;
    any = any || once[i] != 0;
  }
  return any;
}

// The key holds all that decides which plan is chosen, so that a run with other settings does not
// find this one's.
std::unique_ptr<Matmul> MakeConvolution(const CudnnContext& context, const MatmulRequest& request) {
  const std::string key = KeyOf(request) + KeyOf(ChoiceOf(context, request)) +
                          (context.deterministic ? ", deterministic" : "") +
                          (IsTried(request) ? ", tried" : "");
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
