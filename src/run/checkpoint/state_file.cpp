// The state's hash is of its JSON without blanks and without the hash itself, which stands last.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "error.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/json_file.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {
namespace {

// Files of another version are refused. A field that files of this version may lack is optional in
// StateOf.
constexpr std::int64_t kVersion = 2;
// A larger file is no checkpoint's JSON, and is not read into memory.
constexpr std::uint64_t kLargestJson = 64u << 20;
constexpr std::string_view kHashField = ",\"state_xxh3\":\"";

std::string HashOf(std::string_view text) { return HashBytes(std::as_bytes(std::span(text))); }

// JSON without the blanks that stand outside of its strings.
std::string WithoutBlanks(std::string_view text) {
  std::string dense;
  dense.reserve(text.size());
  bool quoted = false, escaped = false;
  for (const char c : text) {
    if (!quoted && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) continue;
    dense += c;
    quoted = c == '"' && !escaped ? !quoted : quoted;
    escaped = quoted && c == '\\' && !escaped;
  }
  return dense;
}

// Whether the state is the one whose hash stands at the end of `text`.
// The hash is looked for in the text, not in parsed JSON: a damaged file need not be JSON at all,
// and blanks do not count, so a file that was formatted by an editor still matches.
bool HashMatches(const std::string& path, std::string_view text) {
  const std::string dense = WithoutBlanks(text);
  const std::size_t at = dense.rfind(kHashField);
  if (at == std::string::npos) Damaged(path, "not a checkpoint's JSON");
  const std::string body = dense.substr(0, at) + "}";
  return dense.substr(at) == std::string(kHashField) + HashOf(body) + "\"}";
}

// Each call of `fields` throws DataError that names the field where it is missing or of another
// type.
CheckpointState StateOf(const JsonFields& fields) {
  CheckpointState s;
  s.step = fields.Count("step");
  s.updates = fields.Count("updates");
  s.skips_in_a_row = fields.Count("skips_in_a_row");
  s.retries = fields.Count("retries");
  s.schedule_steps = fields.Count("schedule_steps");
  s.seed = fields.Unsigned("seed");
  s.best_top1 = fields.Number("best_top1");
  s.policy = fields.Texts("policy");
  s.layers = fields.TextMaps("layers");
  s.tensors = fields.TextMaps("tensors");
  if (fields.Has("scenarios"))  // not in checkpoints of earlier versions
    s.scenarios = fields.TextMaps("scenarios");
  if (fields.Has("class_weights")) s.class_weights = fields.Numbers("class_weights");
  s.lengths = fields.Counts("lengths");
  if (fields.Has("input")) s.input = InputFactsFrom(fields.Object("input"));
  if (fields.Has("data")) s.data_facts = DataFactsFrom(fields.Object("data"));
  s.config = fields.Text("config");
  s.backend = fields.Text("backend");
  s.version = fields.Text("version");
  return s;
}

}  // namespace

void Damaged(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what + "; this checkpoint cannot be used");
}

// The order of the fields is part of the hash: the JSON keeps the order in which they are put in
// here.
std::string StateText(const CheckpointState& s, const std::string& tensors_hash) {
  nlohmann::ordered_json j;
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
  if (!s.class_weights.empty()) j["class_weights"] = s.class_weights;
  j["lengths"] = s.lengths;
  if (s.input) j["input"] = JsonOf(*s.input);
  if (s.data_facts) j["data"] = JsonOf(*s.data_facts);
  j["config"] = s.config;
  j["backend"] = s.backend;
  j["version"] = s.version;
  j["tensors_xxh3"] = tensors_hash;
  j["state_xxh3"] = HashOf(j.dump());
  return j.dump(1) + "\n";
}

StoredState ReadStateText(const std::string& path) {
  const std::string text = ReadFile<DataError>(path, kLargestJson);
  if (!HashMatches(path, text)) Damaged(path, "its hash does not match: the file is damaged");
  const nlohmann::json json = ParseJson(path, text);
  const JsonFields fields(json, path);
  const std::int64_t version = fields.Count("format_version");
  if (version != kVersion)
    Damaged(path, "format version " + std::to_string(version) + ", this program reads " +
                      std::to_string(kVersion));
  return {StateOf(fields), fields.Text("tensors_xxh3")};
}

}  // namespace ada::run
