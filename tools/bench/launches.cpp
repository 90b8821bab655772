// What a training step asks of the CUDA backend, counted by the host executor:
//
//   bench_launches CONFIG [KEY=VALUE ...]
//
// Markdown: launches of each kernel in a step, and products, each a library's and of one kernel or
// more; then how often one stream waits for another, and what is copied to the host. Their number
// depends on the network, the policy and the formats, hardly on the size of images and batches: the
// host executor is slow, so small ones do.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/context.h"
#include "config/load.h"
#include "cuda/host/host_stream.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "run/assemble/assemble.h"
#include "run/plan/plan_reports.h"
#include "scaling/policies/policies.h"
#include "step/specs.h"

namespace ada::bench {
namespace {

config::Config ConfigOf(int count, char** words) {
  config::Overrides overrides;
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t sign = std::min(word.find('='), word.size() - 1);
    overrides.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
  config::Config config = config::Load(words[1], overrides).config;
  return run::Completed(config, run::InspectData(config));
}

bool IsLaunch(const std::string& name) {
  for (const char* other : {"replay", "copy", "zero", "to device", "to host", "waits",
                            "lane: to device", "lane: waits"})
    if (name == other) return false;
  return true;
}

// By the names of kernels without their arguments; of all else by its name.
std::map<std::string, int> CountsOf(const std::vector<std::string>& names) {
  std::map<std::string, int> counts;
  for (const std::string& name : names) {
    std::string kernel = name.substr(0, name.find('<'));
    const std::size_t inner = name.find('<');
    if (kernel == "ForEachKernel" && inner != std::string::npos) {
      kernel = name.substr(inner + 1, name.find_first_of("<>", inner + 1) - inner - 1);
      kernel = kernel.substr(kernel.rfind(':') + 1);
    }
    ++counts[kernel];
  }
  return counts;
}

void Count(const config::Config& config) {
  const data::DatasetInfo info = run::InspectData(config);
  const Shape image{1, info.height, info.width, info.channels};
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
  if (count < 2) {
    std::fprintf(stderr, "bench_launches: expected a configuration, then KEY=VALUE ...\n");
    return 2;
  }
  try {
    ada::bench::Count(ada::bench::ConfigOf(count, words));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_launches: %s\n", error.what());
    return 1;
  }
}
