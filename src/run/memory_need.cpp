// Adds up part by part what a run needs, and refuses a run that needs more than the machine or a
// limit allows.
#include "run/memory_need.h"

#include "error.h"
#include "graph/network/shapes.h"
#include "graph/network/tensor_storage.h"
#include "io/machine.h"
#include "io/text.h"
#include "optim/optimizer.h"
#include "run/assemble/assemble.h"
#include "step/specs.h"

namespace ada::run {
namespace {

// Program text, libraries, generated kernels and heap of a process that trains nothing (measured).
constexpr std::uint64_t kProcessBytes = 14u << 20;
// Needs are estimates: a run that comes close to the limit is warned of.
constexpr double kWarned = 0.9;    // of what can be had
constexpr std::size_t kNamed = 3;  // tensors

std::string HostText(const MemoryNeed& need) {
  const std::string first =
      need.has_own_memory ? "" : "network and optimizer " + HumanBytes(need.network) + ", ";
  const std::string decoding =
      need.decoding.bytes > 0 ? ", decoding " + HumanBytes(need.decoding.bytes) : "";
  return HumanBytes(need.OnHost()) + " (" + first + "images " + HumanBytes(need.images) + decoding +
         ", batches ahead " + HumanBytes(need.batches) + ", a checkpoint " +
         HumanBytes(need.checkpoint) + ", program " + HumanBytes(kProcessBytes) + ")";
}

std::string LargestText(const graph::GraphSpec& graph) {
  std::string text;
  for (const graph::TensorSize& tensor : graph::LargestTensors(graph, kNamed))
    text += (text.empty() ? "" : ", ") + tensor.name + " " +
            HumanBytes(static_cast<std::uint64_t>(tensor.bytes));
  return text;
}

// Names what else is large, and which key makes it smaller.
std::string LargestPartsText(const MemoryNeed& need, const graph::GraphSpec& graph) {
  const std::string tensors = "the largest tensors of the network: " + LargestText(graph);
  return need.decoding.bytes == 0
             ? tensors
             : tensors + "; the largest picture to decode: " + need.decoding.largest;
}

// The bytes of an image's targets in a batch, and of the outputs of a network for it that an
// evaluation reads back; 0 for classification, where both are small.
struct TaskBytes {
  std::uint64_t targets = 0, outputs = 0;
};
TaskBytes BytesOfTask(const config::Config& config, const data::DatasetInfo& info) {
  if (config.task == Task::kClassification) return {};
  const graph::Network network =
      graph::Resolve(config.model, {1, info.height, info.width, info.channels}, config.task);
  TaskBytes bytes;
  for (const int output : network.outputs)
    if (MeasuresClasses(config.task))
      bytes.outputs +=
          sizeof(float) * static_cast<std::uint64_t>(network.shape(output).per_image());
  const Shape& last = network.shape(network.outputs.back());
  // A label, and in detection four numbers more.
  const std::uint64_t values = config.task == Task::kDetection ? 5 : 1;
  bytes.targets = sizeof(float) * values * static_cast<std::uint64_t>(last.h * last.w);
  return bytes;
}

bool Accumulates(const config::Config& config) {
  return config.precision.accumulated_gradients.format != kFp32;
}

// The batches in fp32 that a loader holds (data/loader.h).
std::uint64_t BatchesOf(const data::LoaderSpec& spec) {
  return spec.workers == 0 ? 1 : static_cast<std::uint64_t>(spec.prefetch) + 1;
}

}  // namespace

std::uint64_t MemoryNeed::OnHost() const {
  return images + decoding.bytes + batches + checkpoint + kProcessBytes +
         (has_own_memory ? 0 : network);
}

std::uint64_t BytesOfImages(const data::DatasetInfo& info) {
  return static_cast<std::uint64_t>(info.train + info.test + info.validation) *
         static_cast<std::uint64_t>(info.in_memory);
}

MemoryNeed NeedOfData(const config::Config& config, const data::DatasetInfo& info, bool trains) {
  const auto pixels = static_cast<std::uint64_t>(info.height) *
                      static_cast<std::uint64_t>(info.width) *
                      static_cast<std::uint64_t>(info.channels);
  MemoryNeed need;
  need.images = BytesOfImages(info);
  if (info.found)
    need.decoding = data::NeedOfDecoding(*info.found, EvaluationLoader(config, {}, {}).workers);
  const TaskBytes of_task = BytesOfTask(config, info);
  // The training's loader lives on while an evaluation reads its own batches, none of which is
  // larger than a split.
  const std::int64_t batch = config.data.evaluation_batch();
  const auto evaluated =
      static_cast<std::uint64_t>(std::min(batch, std::max(info.test, info.validation)));
  std::uint64_t images = BatchesOf(EvaluationLoader(config, {}, {})) * evaluated;
  if (trains)
    images += BatchesOf(TrainChanges(config)) * static_cast<std::uint64_t>(config.data.batch_size);
  need.batches = images * (4 * pixels + of_task.targets) + of_task.outputs * evaluated;
  return need;
}

// Two tensors a parameter (the master and its gradient; a third for its sum, where the host adds up
// gradients) and the optimizer's state; activations come
// on top.
MemoryNeed LeastNeed(const config::Config& config, const data::DatasetInfo& info,
                     const graph::GraphSpec& graph) {
  MemoryNeed need = NeedOfData(config, info, /*trains=*/true);
  const graph::Network network = graph::Resolve(*graph.model, graph.input, graph.task);
  graph::RefuseHuge(network, graph.input.n, graph.model->where);
  // The states as if all were one vector: their scales and averages of rows are small beside them.
  const std::int64_t numel = network.trained_numel();
  need.network = (Accumulates(config) ? 3 : 2) * sizeof(float) * static_cast<std::uint64_t>(numel) +
                 optim::StateMemory(step::UpdateRuleOf(config), {numel}, /*other=*/false);
  return need;
}

std::uint64_t OptimizerBytes(const config::Config& config, const graph::Graph& graph) {
  std::uint64_t bytes = 0;
  const backend::UpdateRule rule = step::UpdateRuleOf(config);
  for (const optim::OptimizedParameter& p : step::OptimizedParameters(config.optimizer, graph))
    bytes += optim::StateMemory(rule, p.dims, p.other);
  return bytes;
}

std::uint64_t AccumulatedBytes(const config::Config& config, const graph::Graph& graph) {
  std::uint64_t bytes = 0;
  if (Accumulates(config))
    for (const graph::Parameter& p : graph.parameters())
      if (p.gradient) bytes += p.gradient.bytes();
  return bytes;
}

std::uint64_t CheckpointBytes(const config::Config& config, const graph::Graph& graph) {
  std::uint64_t bytes = OptimizerBytes(config, graph);
  const std::uint64_t copies = config.train.ema.decay > 0 ? 2 : 1;  // and the average
  for (const graph::Parameter& p : graph.parameters()) bytes += copies * p.value.bytes();
  return bytes;
}

void RefuseMemory(const MemoryNeed& need, const graph::GraphSpec& graph, double times) {
  const MemoryLimit limit = SmallestMemoryLimit();
  if (static_cast<double>(need.OnHost()) <= times * static_cast<double>(limit.bytes)) return;
  throw DeviceError("the run would need about " + HostText(need) + " of memory, and " +
                    HumanBytes(limit.bytes) + " can be had (" + limit.source + "); " +
                    LargestPartsText(need, graph) +
                    "; use a smaller network, data.batch_size, data.limit, or train.accumulate" +
                    (need.decoding.bytes > 0 ? ", smaller pictures or fewer data.workers" : ""));
}

// Memory that other programs hold now may be free later: it is a reason to warn, not to refuse.
std::string MemoryWarning(const MemoryNeed& need, const graph::GraphSpec& graph) {
  const MemoryLimit limit = SmallestMemoryLimit();
  const auto wanted = static_cast<double>(need.OnHost()), most = static_cast<double>(limit.bytes);
  const auto available = static_cast<double>(AvailableMemory());
  if (wanted <= kWarned * most && wanted <= available) return "";
  const bool crowded = available < most;
  return "the run needs about " + HumanBytes(need.OnHost()) + " of memory, and " +
         (crowded ? HumanBytes(AvailableMemory()) + " are free now"
                  : HumanBytes(limit.bytes) + " can be had (" + limit.source + ")") +
         ": it may be ended by the system; " + LargestPartsText(need, graph);
}

std::string ToString(const MemoryNeed& need) {
  if (!need.has_own_memory) return HostText(need);
  return HumanBytes(need.network + need.resident_images) +
         " on the device (network and optimizer " + HumanBytes(need.network) + ", images " +
         HumanBytes(need.resident_images) + "); " + HostText(need) + " on the host";
}

}  // namespace ada::run
