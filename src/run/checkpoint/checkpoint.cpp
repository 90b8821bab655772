// Reads and writes checkpoints, lists those that a folder holds, and removes those that are too
// old.
#include "run/checkpoint/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string_view>

#include "error.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "step/weight_values.h"

namespace ada::run {
namespace {

namespace fs = std::filesystem;

// The path of either file of a pair, or their common stem, names a checkpoint.
std::string StemOf(const std::string& path) {
  const fs::path p(path);
  return p.extension() == ".json" || p.extension() == ".safetensors"
             ? fs::path(p).replace_extension().string()
             : path;
}

// Every tensor of a checkpoint in its fixed order, with its memory in the backend.
struct Stored {
  std::string name;
  std::vector<std::int64_t> dims;
  Tensor tensor;
  const graph::Parameter* parameter = nullptr;  // null: the optimizer's state
};
std::vector<Stored> StoredTensors(const graph::Graph& graph, const optim::Optimizer* optimizer) {
  std::vector<Stored> all;
  std::map<std::string, std::vector<std::int64_t>> dims;
  for (const graph::Parameter& p : graph.parameters()) {
    all.push_back({p.name, p.dims, p.value, &p});
    dims[p.name] = p.dims;
  }
  if (optimizer == nullptr) return all;
  for (const optim::StateTensor& s : optimizer->state()) {  // optimizer.<parameter>.<state>
    const std::size_t begin = s.name.find('.') + 1, end = s.name.rfind('.');
    const auto& like = dims.at(s.name.substr(begin, end - begin));
    all.push_back({s.name, s.dims.empty() ? like : s.dims, s.tensor});
  }
  return all;
}

// Names that CheckpointStem did not make, best.json for example, are never listed and never
// deleted.
constexpr std::string_view kState = ".json", kTensors = ".safetensors";

// The step in a name that CheckpointStem made, with this ending; -1: it is another's.
// The name is made again from the number and compared, so that step-7.json or step-0000007x.json
// does not count.
std::int64_t StepOf(const std::string& name, std::string_view ending) {
  constexpr std::string_view kBegin = "step-";
  if (!name.starts_with(kBegin) || !name.ends_with(ending)) return -1;
  const std::int64_t step = std::strtoll(name.c_str() + kBegin.size(), nullptr, 10);
  return "/" + name == CheckpointStem("", step) + std::string(ending) ? step : -1;
}

// Both lists have falling steps, which set_difference is told by std::greater.
CheckpointSteps StepsOf(const std::vector<std::string>& names) {
  CheckpointSteps steps;
  std::vector<std::int64_t> tensors;
  for (const std::string& name : names) {
    if (const std::int64_t step = StepOf(name, kState); step >= 0) steps.paired.push_back(step);
    if (const std::int64_t step = StepOf(name, kTensors); step >= 0) tensors.push_back(step);
  }
  std::sort(steps.paired.rbegin(), steps.paired.rend());
  std::sort(tensors.rbegin(), tensors.rend());
  std::set_difference(tensors.begin(), tensors.end(), steps.paired.begin(), steps.paired.end(),
                      std::back_inserter(steps.tensors_alone), std::greater<>());
  return steps;
}

// The JSON first: tensors without it do not count, so that a kill in between leaves no damaged
// pair. A file that cannot be deleted does no harm.
void Remove(const std::string& folder, std::int64_t step) {
  const std::string stem = CheckpointStem(folder, step);
  for (const std::string_view ending : {kState, kTensors})
    unlink((stem + std::string(ending)).c_str());
}

// What cannot be listed now stays until the next time.
CheckpointSteps ListToRemove(const std::string& folder) {
  std::vector<std::string> names;
  TryListFolder(folder, &names);
  return StepsOf(names);
}

}  // namespace

std::string CheckpointStem(const std::string& folder, std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return folder + "/" + name;
}

// All tensors are copied to the host first: this is the memory that CheckpointBytes
// (memory_need.h) counts. The JSON is written only when the tensors are on the disk, with
// their hash.
void WriteCheckpoint(const std::string& stem, const CheckpointState& state,
                     const graph::Graph& graph, const optim::Optimizer& optimizer,
                     const graph::Graph* average, backend::Backend& backend) {
  backend.Synchronize();
  std::vector<Stored> all = StoredTensors(graph, &optimizer);
  if (average != nullptr)
    for (const Stored& stored : StoredTensors(*average, nullptr))
      all.push_back({kAveragePrefix + stored.name, stored.dims, stored.tensor});
  std::vector<std::vector<float>> host(all.size());
  SafetensorsWriter writer;
  for (std::size_t i = 0; i < all.size(); ++i) {
    host[i] = step::HostValues(all[i].tensor, backend);
    writer.Add(all[i].name, all[i].dims, host[i]);
  }
  const std::string hash = writer.WriteAtomically(stem + ".safetensors");
  WriteFileAtomically(stem + ".json", StateText(state, hash));
}

CheckpointState ReadCheckpointState(const std::string& path) {
  const std::string stem = StemOf(path);
  const StoredState stored = ReadStateText(stem + ".json");
  if (stored.tensors_hash != HashFile(stem + ".safetensors"))
    Damaged(stem + ".safetensors", "its hash is not the one in the JSON file: the file is damaged");
  return stored.state;
}

SafetensorsFile OpenCheckpointTensors(const std::string& path) {
  return SafetensorsFile::Open(StemOf(path) + ".safetensors");
}

// Every tensor that the network has must be in the file with its shape; others in the file are
// passed over.
void LoadCheckpointTensors(const SafetensorsFile& file, graph::Graph& graph,
                           const optim::Optimizer* optimizer, backend::Backend& backend,
                           const std::string& prefix) {
  for (Stored s : StoredTensors(graph, optimizer)) {
    // Another program may have stored a tied weight under its other name.
    const std::string found =
        s.parameter != nullptr ? graph::NameInFile(file, *s.parameter, prefix) : "";
    s.name = found.empty() ? prefix + s.name : found;
    const TensorEntry* entry = file.Find(s.name);
    if (entry == nullptr) Damaged(file.path(), "no tensor " + s.name + ", which this model has");
    if (entry->shape != s.dims)
      Damaged(file.path(), "tensor " + s.name + " has the shape " + DimsText(entry->shape) +
                               ", this model wants " + DimsText(s.dims));
    const std::vector<float> values = file.ReadF32(s.name);
    backend.Upload(s.tensor.data, values.data(), s.tensor.bytes());
  }
}

void LoadTensorScales(const std::string& path, const CheckpointState& state, graph::Graph& graph,
                      bool switched) {
  for (const graph::ScaledTensor& t : graph.scaled_tensors()) {
    const std::string name = t.name();
    if (const auto found = state.tensors.find(name); found != state.tensors.end())
      t.scale->Load(found->second, name, switched);
    else if (!switched)
      Damaged(StemOf(path) + ".json", "no scale of tensor " + name);
  }
  graph.SendTensorScales();
}

CheckpointSteps ListCheckpoints(const std::string& folder) {
  return StepsOf(ListFolder<DataError>(folder));
}

void PruneCheckpoints(const std::string& folder, int keep, std::int64_t written) {
  const CheckpointSteps steps = ListToRemove(folder);
  int kept = 1;  // the one just written
  for (const std::int64_t step : steps.paired)
    if (step < written && ++kept > keep) Remove(folder, step);
  for (const std::int64_t step : steps.tensors_alone)
    if (step < written) Remove(folder, step);
}

void RemoveOtherCheckpoints(const std::string& folder, std::int64_t last) {
  const CheckpointSteps steps = ListToRemove(folder);
  for (const std::int64_t step : steps.paired)
    if (last >= 0 && step > last) Remove(folder, step);
  for (const std::int64_t step : steps.tensors_alone) Remove(folder, step);
}

void RequireClassesOfRun(const config::Config& config, const data::DatasetInfo& info) {
  const std::string folder = config.output + "/checkpoints";
  for (const std::int64_t step : ListCheckpoints(folder).paired) {
    const std::string path = CheckpointStem(folder, step) + ".json";
    std::optional<InputFacts> known;
    try {
      known = ReadStateText(path).state.input;
    } catch (const DataError&) {  // the search for a checkpoint to resume from reports the problem
      continue;
    }
    return RequireSameClasses(path, known, config, info);
  }
}

}  // namespace ada::run
