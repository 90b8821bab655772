// What a training step asks of the CUDA backend, counted by the host executor:
//
//   bench_launches CONFIG [KEY=VALUE ...]
//
// Markdown: launches of each kernel in a step, and products, each a library's and of one kernel or
// more; then how often one stream waits for another, and what is copied to the host. Their number
// depends on the network, the policy and the formats, hardly on the size of images and batches: the
// host executor is slow, so small ones do.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backend/cuda/context.h"
#include "cuda/host/host_stream.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "run/plan/plan_reports.h"
#include "scaling/policies/policies.h"
#include "step/specs.h"
#include "words.h"

namespace ada::bench {
namespace {

bool IsLaunch(const std::string& name) {
  static constexpr const char* kOthers[] = {
      "replay", "copy", "zero", "to device", "to host", "waits", "lane: to device", "lane: waits"};
  return std::find(std::begin(kOthers), std::end(kOthers), name) == std::end(kOthers);
}

// By the names of kernels without their arguments; of all else by its name.
std::map<std::string, int> CountsOf(const std::vector<std::string>& names) {
  std::map<std::string, int> counts;
  for (const std::string& name : names) {
    const std::size_t inner = name.find('<');
    std::string kernel = name.substr(0, inner);
    if (kernel == "ForEachKernel" && inner != std::string::npos) {
      kernel = name.substr(inner + 1, name.find_first_of("<>", inner + 1) - inner - 1);
      kernel = kernel.substr(kernel.rfind(':') + 1);
    }
    ++counts[kernel];
  }
  return counts;
}

void Count(const char* path, const config::Overrides& overrides) {
  Shape image;
  const config::Config config = LoadCompleted(path, overrides, image);
  auto stream = std::make_unique<backend::cuda::HostStream>();
  backend::cuda::HostStream& names = *stream;
  const auto backend = backend::cuda::MakeBackendOn(std::move(stream), {"host", "host"}, {});
  const auto policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(step::TrainGraph(config, image, *policy), *backend);
  optim::Optimizer optimizer(*backend, step::UpdateRuleOf(config),
                             step::OptimizedParameters(config.optimizer, *graph),
                             config.train.clip_norm);
  run::MeasureStep(config, *graph, optimizer, *policy, image, *backend);
  names.KeepNames();
  run::MeasureStep(config, *graph, optimizer, *policy, image, *backend);
  int launches = 0;
  std::printf("| kernel | a step |\n|---|---|\n");
  const auto counts = CountsOf(names.TakeNames());
  const auto each = [](int count) {
    return (count + run::kMeasuredSteps / 2) / run::kMeasuredSteps;
  };
  for (const auto& [kernel, count] : counts) {
    if (!IsLaunch(kernel) || each(count) == 0) continue;
    launches += each(count);
    std::printf("| %s | %d |\n", kernel.c_str(), each(count));
  }
  std::printf("| all | %d |\n", launches);
  for (const auto& [name, text] : {std::pair("waits", "waits of one stream for another"),
                                   std::pair("to host", "copies to the host")})
    if (const auto found = counts.find(name); found != counts.end())
      std::printf("| %s | %d |\n", text, each(found->second));
}

}  // namespace
}  // namespace ada::bench

int main(int count, char** words) {
  return ada::bench::Finish(count >= 2, "bench_launches CONFIG [KEY=VALUE ...]", [&] {
    ada::bench::Count(words[1], ada::bench::OverridesFrom(2, count, words));
  });
}
