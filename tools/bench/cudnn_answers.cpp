// bench_cudnn PROPERTIES CONFIG IMAGE BATCH [KEY=VALUE ...]: what cuDNN has for the products of a
// network's convolutions in fp16 over images of IMAGE (224x224x3), as Markdown, on a device that is
// described by PROPERTIES (tools/bench/sm_90.json) and need not be there. Those that cuBLAS does
// are left out. A cell has the engines that the heuristics offer, best first, and the number of
// their configurations; "none": no plan.
#include <cudnn.h>
#include <cudnn_frontend.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "backend/cuda/device/cudnn_convolution.h"
#include "config/load.h"
#include "error.h"
#include "graph/network/shapes.h"
#include "io/file.h"
#include "layers.h"

// The frontend asks the runtime for the device as well, where there is none to be asked.
extern "C" cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
extern "C" cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}

namespace ada::bench {
namespace {

namespace fe = cudnn_frontend;
using backend::cuda::MatmulGeometry;
using backend::cuda::MatmulKind;
using backend::cuda::MatmulRequest;
using Properties = std::shared_ptr<fe::DeviceProperties>;

Properties ReadProperties(const std::string& path) {
  const std::string text = ReadFile<ConfigError>(path, 1 << 20);
  auto properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t status = properties->deserialize({text.begin(), text.end()});
  if (status.is_bad()) throw std::runtime_error(path + ": " + status.get_message());
  return properties;
}

// "62 67 (40)".
std::string EnginesOf(const fe::graph::Graph& graph) {
  std::vector<std::string> engines;
  const std::int64_t plans = graph.get_execution_plan_count();
  for (std::int64_t i = 0; i < plans; ++i) {
    std::string name;
    if (graph.get_plan_name_at_index(i, name).is_bad()) continue;
    name = name.substr(3, name.find('_') - 3);  // "eng62_k2=4..."
    if (std::find(engines.begin(), engines.end(), name) == engines.end()) engines.push_back(name);
  }
  std::string text;
  for (const std::string& engine : engines) text += engine + " ";
  return text + "(" + std::to_string(plans) + ")";
}

std::string Ask(const MatmulRequest& request, const Properties& properties) {
  const auto graph = backend::cuda::GraphOf(request);
  graph->set_device_properties(properties);
  if (graph->validate().is_bad() || graph->build_operation_graph().is_bad() ||
      graph->create_execution_plans({fe::HeurMode_t::A}).is_bad())
    return "none";
  using Note = fe::NumericalNote_t;
  graph->deselect_numeric_notes({Note::DOWN_CONVERT_INPUTS, Note::REDUCED_PRECISION_REDUCTION,
                                 Note::FFT, Note::WINOGRAD, Note::NONDETERMINISTIC});
  return graph->check_support().is_bad() ? "none" : EnginesOf(*graph);
}

std::string Rounded(MatmulKind kind, const MatmulGeometry& geometry, bool scale,
                    const Properties& device) {
  return Ask({kind, geometry, Storage::kF16, Storage::kF16, scale}, device);
}
std::string Weights(const MatmulGeometry& geometry, const Properties& device) {
  for (const MatmulRequest& request :
       RequestsFor(MatmulKind::kWeights, geometry, static_cast<int>(geometry.x.n), Storage::kF16,
                   backend::cuda::PlanOutput::kSums)) {
    const std::string answer = Ask(request, device);
    if (answer == "none" || request.operands != Storage::kF16) continue;
    const std::int64_t channels = request.geometry.x.c;
    return answer + (channels == geometry.x.c ? "" : ", " + std::to_string(channels) + " channels");
  }
  return "none";
}

MatmulGeometry GeometryOf(const Layer& layer) {
  MatmulGeometry g;
  g.linear = layer.linear;
  g.x = layer.x, g.w = layer.w, g.y = layer.y;
  g.stride = layer.stride, g.padding = layer.padding, g.dilation = layer.dilation;
  g.groups = layer.groups;
  return g;
}

void Print(const Counted& counted, const MatmulGeometry& g, const Properties& device) {
  const Layer& layer = counted.layer;
  const auto data = [&](bool scale) {
    return layer.data_gradient ? Rounded(MatmulKind::kData, g, scale, device) : "";
  };
  std::printf("| %s | %d | %s | %s | %s | %s |\n", layer.Text().c_str(), counted.layers,
              Rounded(MatmulKind::kForward, g, false, device).c_str(), data(false).c_str(),
              data(true).c_str(), Weights(g, device).c_str());
  std::fflush(stdout);
}

void Run(int argc, char** argv) {
  config::Overrides overrides;
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    overrides.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
  }
  const Properties device = ReadProperties(argv[1]);
  const config::Config config = config::Load(argv[2], overrides).config;
  const graph::Network network = graph::Resolve(config.model, ParseImage(argv[3]), config.task);
  std::puts("| convolution | layers | y | dx | dx, scaled | dw in fp32 |");
  std::puts("|---|---|---|---|---|---|");
  for (const Counted& layer : DistinctLayers(network, std::max(1, std::atoi(argv[4])))) {
    const MatmulGeometry geometry = GeometryOf(layer.layer);
    if (!IsMatrix(geometry)) Print(layer, geometry, device);
  }
}

}  // namespace
}  // namespace ada::bench

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: bench_cudnn PROPERTIES CONFIG IMAGE BATCH [KEY=VALUE...]\n", stderr);
    return 2;
  }
  try {
    ada::bench::Run(argc, argv);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_cudnn: %s\n", e.what());
    return 1;
  }
}
