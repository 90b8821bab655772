// --dry-run: everything a run would make, made but not run.
#include <ostream>

#include "core/text.h"
#include "graph/network/layer_table.h"
#include "train/evaluator.h"
#include "train/run.h"
#include "train/session.h"

namespace ada::train {
namespace {

// What decides alpha in each layer, as a word for the table.
std::vector<std::string> PolicyWords(const graph::Graph& graph, const scaling::Policy& policy) {
  std::vector<std::string> words;
  for (const graph::LayerRow& layer : graph.layers()) {
    std::string word = "-";
    for (const graph::ScalePoint& point : graph.scales()) {
      if (point.scaler == nullptr || point.layer != layer.name) continue;
      const scaling::LayerMethod method = point.scaler->rule.method;
      word = std::string(policy.name());
      if (method == scaling::LayerMethod::kPass || method == scaling::LayerMethod::kState) continue;
      word += std::string(": ") + scaling::MethodName(method);
      if (method == scaling::LayerMethod::kFixed)
        word += " " + ShortestText(point.scaler->rule.fixed_scale);
    }
    words.push_back(word);
  }
  return words;
}

// Program text, libraries, generated kernels and heap of a process that trains nothing (measured).
constexpr std::uint64_t kProcessBytes = 14u << 20;

// A checkpoint is copied as a whole before it is written.
std::uint64_t CheckpointBytes(const graph::Graph& graph, const optim::Optimizer& optimizer) {
  std::uint64_t bytes = 0;
  for (const graph::Parameter& p : graph.parameters()) bytes += p.value.bytes();
  for (const optim::StateTensor& s : optimizer.state()) bytes += s.tensor.bytes();
  return bytes;
}

// What a run takes, part by part.
struct Memory {
  std::uint64_t network = 0, images = 0, resident_images = 0, batches = 0, checkpoint = 0;
};

std::string OnHost(const Memory& memory, std::uint64_t network) {
  const std::string first =
      network > 0 ? "network and optimizer " + HumanBytes(network) + ", " : std::string();
  return HumanBytes(network + memory.images + memory.batches + memory.checkpoint + kProcessBytes) +
         " (" + first + "images " + HumanBytes(memory.images) + ", batches ahead " +
         HumanBytes(memory.batches) + ", a checkpoint " + HumanBytes(memory.checkpoint) +
         ", program " + HumanBytes(kProcessBytes) + ")";
}

std::string OnDevice(const Memory& memory) {
  return HumanBytes(memory.network + memory.resident_images) +
         " on the device (network and optimizer " + HumanBytes(memory.network) + ", images " +
         HumanBytes(memory.resident_images) + ")";
}

// Of images that the device will keep, each split where it fits.
std::uint64_t ResidentBytes(const config::Config& config, const data::DatasetInfo& info,
                            const backend::Backend& backend) {
  backend::ImageSourceSpec source;
  source.image = {1, info.height, info.width, info.channels};
  std::uint64_t bytes = 0;
  const bool trains = ResidenceOf(config) == Batches::Residence::kAnywhere;
  for (const std::int64_t images : {trains ? info.train : 0, config.data.validation, info.test}) {
    source.images = images;
    if (images > 0) bytes += backend.ImageSourceBytes(source);
  }
  return bytes;
}

}  // namespace

void DryRun(const config::Config& config, std::ostream& out) {
  const ChosenBackend chosen = MakeBackend(config.device);
  const data::DatasetInfo info = InspectData(config);
  const Shape image{1, info.height, info.width, info.channels};
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(TrainGraph(config, image, *policy), *chosen.backend);
  const optim::Optimizer optimizer(*chosen.backend, config.optimizer,
                                   OptimizedParameters(config.optimizer, *graph),
                                   config.train.clip_norm);
  const Evaluator evaluator(config, image, *chosen.backend, graph.get());
  std::optional<Probe> probe;
  if (config.log.probe_every > 0) probe.emplace(config, image, *graph, *chosen.backend);

  for (const std::string& line : graph::LayerTable(graph->layers(), PolicyWords(*graph, *policy)))
    out << line << '\n';
  const auto pixels = static_cast<std::uint64_t>(image.per_image());
  const auto all = static_cast<std::uint64_t>(info.train + info.test + config.data.validation);
  Memory memory;
  memory.images = all * (pixels + 1);
  memory.resident_images = ResidentBytes(config, info, *chosen.backend);
  memory.batches = 4 * 5 * pixels * static_cast<std::uint64_t>(config.data.batch_size);
  memory.network = chosen.backend->allocated_bytes();
  memory.checkpoint = CheckpointBytes(*graph, optimizer);
  const std::int64_t per_epoch = StepsPerEpoch(config, info.train);
  out << "device    " << chosen.reason << '\n'
      << "data      " << config.data.dataset << ": " << info.train << " training and " << info.test
      << " test images of " << ToString(image) << '\n'
      << "steps     " << per_epoch << " an epoch, " << TotalSteps(config, per_epoch) << " in all\n"
      << "memory    "
      << (chosen.has_own_memory ? OnDevice(memory) + "; " + OnHost(memory, 0) + " on the host"
                                : OnHost(memory, memory.network))
      << '\n';
}

}  // namespace ada::train
