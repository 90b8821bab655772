// Stores the losses and troubles of forks, so that a long `blame` can be interrupted and resumed.
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/text.h"
#include "study/blame/findings.h"
#include "telemetry/progress.h"

namespace ada::study {
namespace {

using Json = nlohmann::json;

// The text of a key; "" where there is none, or something else.
std::string TextOf(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

Forks::Forks(const run::ForkSource& source, const BlameOptions& options, telemetry::Log& log)
    : source_(source),
      options_(options),
      log_(log),
      file_(options.folder + "/blame.json"),
      keeps_(options.metric == BlameOptions::Metric::kLoss) {
  if (!keeps_) return;
  // The key identifies the question that a file belongs to: its version, the step, the length of
  // forks, the checkpoint, the data and the whole configuration. Forks are identified by names.
  key_ = "3 " + std::to_string(source.step()) + " " + std::to_string(options.steps) + " " +
         source.Identity() + " " + config::ToYaml(source.config());
  Load();
}

// What another command left, or anything else, is made anew.
void Forks::Load() {
  std::error_code error;
  if (!std::filesystem::exists(file_, error)) return;
  std::string text;
  const FileProblem problem = TryReadFile(file_, std::uint64_t{1} << 28, &text);
  if (!problem.words.empty()) return Leave(problem.words);
  // A torn or foreign file gives a discarded value, which is no object.
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || TextOf(json, "of") != key_ || !json.contains("losses")) return;
  if (!json["losses"].is_object()) return;
  const Json troubles = json.contains("troubles") ? json["troubles"] : Json::object();
  for (const auto& [name, losses] : json["losses"].items()) {
    run::ForkResult result;
    if (!losses.is_array()) continue;
    for (const Json& loss : losses)
      // JSON has no NaN: nlohmann writes null for a loss that is not finite.
      result.losses.push_back(loss.is_number() ? loss.get<double>() : NAN);
    if (troubles.is_object()) result.trouble = TextOf(troubles, name);
    if (result.losses.size() == static_cast<std::size_t>(options_.steps))
      results_[name] = std::move(result);
  }
}

// A run that may only be read is asked all the same.
void Forks::Leave(const std::string& problem) {
  log_.Warning(problem + "; the forks are not kept, so that the next command makes them again");
  keeps_ = false;
}

void Forks::Save() {
  Json json;
  json["of"] = key_;
  for (const auto& [name, result] : results_) {
    json["losses"][name] = result.losses;
    if (!result.trouble.empty()) json["troubles"][name] = result.trouble;
  }
  try {
    WriteFileAtomically(file_, json.dump(1) + "\n");
  } catch (const OutputError& error) {
    Leave(error.what());
  }
}

// "fork 8 of 21, 2 min left: layer conv1". Results near the noise ask for more forks than were
// expected before.
std::string Forks::Progress(const std::string& name) const {
  std::size_t left = 0;
  for (const std::string& each : expected_) left += results_.contains(each) ? 0 : 1;
  const std::size_t all = results_.size() + left;
  std::string text = "fork " + std::to_string(results_.size() + 1) + " of " + std::to_string(all);
  if (made_ > 0) {
    const double seconds = static_cast<double>(left) * seconds_ / static_cast<double>(made_);
    text += seconds < 60 ? Formatted(", %.0f s left", std::ceil(seconds))
                         : Formatted(", %.0f min left", std::ceil(seconds / 60));
  }
  return text + ": " + name;
}

const run::ForkResult& Forks::Of(const std::string& name, run::ForkSpec spec) {
  const auto known = results_.find(name);
  if (known != results_.end()) return known->second;
  expected_.insert(name);
  log_.SetStatus(Progress(name));
  const double began = telemetry::SteadySeconds();
  spec.steps = options_.steps;
  spec.gradients = options_.metric == BlameOptions::Metric::kGradient;
  run::ForkResult& result = results_[name] = source_.Run(spec);
  ++made_;
  seconds_ += telemetry::SteadySeconds() - began;
  // Saved after each fork, so that a command that is stopped loses at most one.
  if (keeps_) Save();
  return result;
}

}  // namespace ada::study
