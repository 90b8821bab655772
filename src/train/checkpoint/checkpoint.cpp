// Reading and writing of checkpoints; see checkpoint.h.
#include "train/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/safetensors.h"
#include "core/text.h"
#include "train/checkpoint/weight_values.h"

namespace ada::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
constexpr int kVersion = 2;
constexpr std::uint64_t kLargestJson = 64u << 20;

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
};
std::vector<Stored> StoredTensors(const graph::Graph& graph, const optim::Optimizer* optimizer) {
  std::vector<Stored> all;
  std::map<std::string, std::vector<std::int64_t>> dims;
  for (const graph::Parameter& p : graph.parameters()) {
    all.push_back({p.name, p.dims, p.value});
    dims[p.name] = p.dims;
  }
  if (optimizer == nullptr) return all;
  for (const optim::StateTensor& s : optimizer->state()) {  // optimizer.<parameter>.<state>
    const std::size_t begin = s.name.find('.') + 1, end = s.name.rfind('.');
    all.push_back({s.name, dims.at(s.name.substr(begin, end - begin)), s.tensor});
  }
  return all;
}

std::string Dims(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (const std::int64_t d : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "]";
}

Json ToJson(const CheckpointState& s, const std::string& tensors_hash) {
  Json j;
  j["format"] = "ada-train checkpoint";
  j["format_version"] = kVersion;
  j["step"] = s.step;
  j["updates"] = s.updates;
  j["skips_in_a_row"] = s.skips_in_a_row;
  j["retries"] = s.retries;
  j["schedule_steps"] = s.schedule_steps;
  j["seed"] = s.seed;
  j["best_top1"] = s.best_top1;
  j["policy"] = s.policy;
  j["layers"] = s.layers;
  j["tensors"] = s.tensors;
  j["scenarios"] = s.scenarios;
  j["lengths"] = s.lengths;
  j["config"] = s.config;
  j["backend"] = s.backend;
  j["version"] = s.version;
  j["tensors_xxh3"] = tensors_hash;
  const std::string text = j.dump();
  j["state_xxh3"] = HashBytes(std::as_bytes(std::span(text)));
  return j;
}

[[noreturn]] void Damaged(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what + "; this checkpoint cannot be used");
}

Json ParseJson(const std::string& path) {
  const std::string text = ReadFile<DataError>(path, kLargestJson);
  Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("state_xxh3"))
    Damaged(path, "not a checkpoint's JSON");
  const std::string wanted = j["state_xxh3"].is_string() ? j["state_xxh3"].get<std::string>() : "";
  j.erase("state_xxh3");
  const std::string body = j.dump();
  if (HashBytes(std::as_bytes(std::span(body))) != wanted)
    Damaged(path, "its hash does not match: the file is damaged");
  if (j.value("format_version", 0) != kVersion)
    Damaged(path, "format version " + std::to_string(j.value("format_version", 0)) +
                      ", this program reads " + std::to_string(kVersion));
  return j;
}

CheckpointState FromJson(const std::string& path, const Json& j) {
  try {
    CheckpointState s;
    s.step = j.at("step").get<std::int64_t>();
    s.updates = j.at("updates").get<std::int64_t>();
    s.skips_in_a_row = j.at("skips_in_a_row").get<std::int64_t>();
    s.retries = j.at("retries").get<std::int64_t>();
    s.schedule_steps = j.at("schedule_steps").get<std::int64_t>();
    s.seed = j.at("seed").get<std::uint64_t>();
    s.best_top1 = j.at("best_top1").get<double>();
    s.policy = j.at("policy").get<scaling::StateMap>();
    s.layers = j.at("layers").get<std::map<std::string, scaling::StateMap>>();
    s.tensors = j.at("tensors").get<std::map<std::string, scaling::StateMap>>();
    if (j.contains("scenarios"))  // not in checkpoints of earlier versions
      s.scenarios = j.at("scenarios").get<std::map<std::string, scaling::StateMap>>();
    s.lengths = j.at("lengths").get<std::map<std::string, std::int64_t>>();
    s.config = j.at("config").get<std::string>();
    s.backend = j.at("backend").get<std::string>();
    s.version = j.at("version").get<std::string>();
    return s;
  } catch (const nlohmann::json::exception& e) {
    Damaged(path, std::string("a field is missing or of the wrong type (") + e.what() + ")");
  }
}

}  // namespace

std::string CheckpointStem(const std::string& folder, std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return folder + "/" + name;
}

void WriteCheckpoint(const std::string& stem, const CheckpointState& state,
                     const graph::Graph& graph, const optim::Optimizer& optimizer,
                     backend::Backend& backend) {
  backend.Synchronize();
  const std::vector<Stored> all = StoredTensors(graph, &optimizer);
  std::vector<std::vector<float>> host(all.size());
  SafetensorsWriter writer;
  for (std::size_t i = 0; i < all.size(); ++i) {
    host[i] = HostValues(all[i].tensor, backend);
    writer.Add(all[i].name, all[i].dims, host[i]);
  }
  const std::string hash = writer.WriteAtomically(stem + ".safetensors");
  WriteFileAtomically(stem + ".json", ToJson(state, hash).dump(1) + "\n");
}

CheckpointState ReadCheckpointState(const std::string& path) {
  const std::string stem = StemOf(path);
  const Json j = ParseJson(stem + ".json");
  const std::string hash = HashFile(stem + ".safetensors");
  if (j.value("tensors_xxh3", "") != hash)
    Damaged(stem + ".safetensors", "its hash is not the one in the JSON file: the file is damaged");
  return FromJson(stem + ".json", j);
}

void LoadCheckpointTensors(const std::string& path, graph::Graph& graph,
                           const optim::Optimizer* optimizer, backend::Backend& backend) {
  const SafetensorsFile file = SafetensorsFile::Open(StemOf(path) + ".safetensors");
  for (const Stored& s : StoredTensors(graph, optimizer)) {
    const TensorEntry* entry = file.Find(s.name);
    if (entry == nullptr) Damaged(file.path(), "no tensor " + s.name + ", which this model has");
    if (entry->shape != s.dims)
      Damaged(file.path(), "tensor " + s.name + " has the shape " + Dims(entry->shape) +
                               ", this model wants " + Dims(s.dims));
    const std::vector<float> values = file.ReadF32(s.name);
    backend.Upload(s.tensor.data, values.data(), s.tensor.bytes());
  }
}

void LoadTensorScales(const std::string& path, const CheckpointState& state, graph::Graph& graph) {
  for (const graph::ScaledTensor& t : graph.scaled_tensors()) {
    const auto found = state.tensors.find(t.name);
    if (found == state.tensors.end())
      Damaged(StemOf(path) + ".json", "no scale of tensor " + t.name);
    scaling::LoadTensorScale(found->second, t.name, t.scale->history, *t.scale->own_scale.host);
  }
  graph.SendTensorScales();
}

std::vector<std::int64_t> ListCheckpoints(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    long long step = 0;
    int used = 0;
    const std::string name = entry.path().filename().string();
    if (std::sscanf(name.c_str(), "step-%lld.json%n", &step, &used) == 1 &&
        used == static_cast<int>(name.size()))
      steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

void PruneCheckpoints(const std::string& folder, int keep) {
  const std::vector<std::int64_t> steps = ListCheckpoints(folder);
  for (std::size_t i = static_cast<std::size_t>(std::max(keep, 1)); i < steps.size(); ++i) {
    const std::string stem = CheckpointStem(folder, steps[i]);
    std::error_code ignored;  // one that stays does no harm
    fs::remove(stem + ".json", ignored);
    fs::remove(stem + ".safetensors", ignored);
  }
}

}  // namespace ada::train
