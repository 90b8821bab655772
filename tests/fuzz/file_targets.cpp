// Safetensors files and the JSON files of a run.
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "io/hash.h"
#include "io/tensor_files/safetensors.h"
#include "run/checkpoint/checkpoint.h"
#include "scaling/policies/policies.h"
#include "study/run_files.h"

namespace ada::fuzz {

void Safetensors(std::string_view input) {
  static const Scratch scratch;
  const std::string path = scratch.Write("input.safetensors", input);
  Refusable([&] {
    const SafetensorsFile file = SafetensorsFile::Open(path);
    for (const TensorEntry& entry : file.entries()) {
      Demand(file.Find(entry.name) == &entry, "a tensor is not found by its name");
      const std::vector<std::byte> bytes = file.Bytes(entry.name);
      const auto bits = static_cast<std::size_t>(entry.numel() * BitsOf(entry.dtype));
      Demand(entry.dtype == DType::kOther || 8 * bytes.size() == bits,
             "a tensor has not as many bytes as its shape says");
      HashBytes(bytes);  // reads them all
      if (IsFloat(entry.dtype)) file.ReadF32(entry.name);
    }
  });
}

// An input that is a JSON object gets the hash that belongs to it, so that what lies after the
// check of the hash is reached as well.
void Checkpoint(std::string_view input) {
  static const Scratch scratch;
  const bool make_right = TakeByte(&input) % 2 == 1;
  std::string text(input);
  if (make_right && input.size() < 100'000) {
    auto json = nlohmann::ordered_json::parse(input, nullptr, false);
    if (json.is_object()) {
      json.erase("state_xxh3");
      const std::string body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      json["state_xxh3"] = HashBytes(std::as_bytes(std::span(body)));
      text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    }
  }
  const std::string path = scratch.Write("step-00000001.json", text);
  Refusable([&] {
    const run::CheckpointState state = run::ReadStateText(path).state;
    for (const scaling::PolicyKind* kind : scaling::kPolicies) {
      Refusable([&] {
        scaling::Settings settings;
        settings.policy = kind->name;
        scaling::FillDefaults(settings);
        const auto policy = scaling::MakePolicy(settings);
        policy->LoadState(state.policy);
        policy->Update({});
        policy->SaveState();
      });
    }
  });
}

void Summary(std::string_view input) {
  static const Scratch scratch;
  scratch.Write("summary.json", input);
  Refusable([&] { study::RunState(scratch.path()); });
}

}  // namespace ada::fuzz
