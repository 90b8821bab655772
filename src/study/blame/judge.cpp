// Defines a finding: a suspect whose fork ends further from the run than chance alone explains.
// Chance is measured by twins: forks whose weights are perturbed by less than their format can
// resolve. The distance of a twin from its original cannot be blamed on any format. Losses and
// troubles of forks are stored, so that a long `blame` can be interrupted and resumed.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

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

// Forks by name, each computed once; losses and troubles are kept in the run's folder, so that a
// command that was stopped goes on.
// References that Of returns stay valid as long as the object, since a map does not move its
// elements. Gradients are too large to keep on disk: only losses are.
class Forks {
 public:
  Forks(const run::ForkSource& source, const BlameOptions& options, telemetry::Log& log)
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
  // `spec` has precision, twin and units.
  const run::ForkResult& Of(const std::string& name, run::ForkSpec spec) {
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
  // Says that this fork will be asked for, so that progress knows how many there are.
  void Expect(const std::string& name) { expected_.insert(name); }

 private:
  // "fork 8 of 21, 2 min left: layer conv1". Results near the noise ask for more forks than were
  // expected before.
  std::string Progress(const std::string& name) const {
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
  // What another command left, or anything else, is made anew.
  void Load() {
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
  void Save() {
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
  // A run that may only be read is asked all the same.
  void Leave(const std::string& problem) {
    log_.Warning(problem + "; the forks are not kept, so that the next command makes them again");
    keeps_ = false;
  }

  const run::ForkSource& source_;
  const BlameOptions& options_;
  telemetry::Log& log_;
  std::string file_, key_;
  bool keeps_;
  std::map<std::string, run::ForkResult> results_;
  std::set<std::string> expected_;
  std::size_t made_ = 0;  // by this command, in so many seconds
  double seconds_ = 0;
};

constexpr char kAsItWas[] = "as it was";
// A suspect is significant if its distance is kTimesNoise times the largest of its twins; if it is
// less than `kClear` times, more twins are run.
constexpr double kTimesNoise = 2, kClear = 4;
constexpr std::uint64_t kTwins = 4, kMoreTwins = 12;

using Units = std::map<std::string, NumberFormat>;
using Of = NumberFormat run::ForkLayer::*;  // its unit, or the narrowest format that it has

// By layer; those that train nothing and round nothing are left out.
Units UnitsOf(const std::vector<run::ForkLayer>& layers, Of of) {
  Units units;
  for (const run::ForkLayer& layer : layers)
    if (layer.trained || layer.rounds) units[layer.name] = layer.*of;
  return units;
}

// The format that most layers have; fp32 where there are none.
NumberFormat UsualUnit(const Units& units) {
  NumberFormat usual = kFp32;
  std::ptrdiff_t most = 0;
  for (const auto& one : units) {
    const auto same = std::count_if(units.begin(), units.end(),
                                    [&](const auto& unit) { return unit.second == one.second; });
    if (same <= most) continue;
    most = same;
    usual = one.second;
  }
  return usual;
}

run::ForkSpec SpecOf(const config::PrecisionConfig& precision) {
  run::ForkSpec spec;
  spec.precision = precision;
  return spec;
}

// A fork, and by how much its twins move the weights.
struct Reference {
  std::string name;
  config::PrecisionConfig precision;
  Units units;
};

// Runs once; forks that several questions share are run once, since Forks remembers them by name.
class Trial {
 public:
  Trial(const run::ForkSource& source, Forks& forks) : source_(source), forks_(forks) {}

  // The fork with the run's own formats.
  const run::ForkResult& AsItWas() {
    return forks_.Of(kAsItWas, SpecOf(source_.config().precision));
  }

  void Run(std::vector<Suspect>& suspects) {
    const config::PrecisionConfig& precision = source_.config().precision;
    const std::vector<run::ForkLayer> layers = source_.Layers(precision);
    const Reference run{kAsItWas, precision, UnitsOf(layers, kUnit)};
    const Units narrowest = UnitsOf(layers, kNarrowest);
    forks_.Expect(kAsItWas);
    ExpectTwins(run, kTwins);
    for (const Suspect& s : suspects)
      if (s.rounds) forks_.Expect(s.fork());
    for (Suspect& s : suspects) {
      // Also for suspects that round nothing, so that the table has a noise for each.
      s.noise = Floor(run, kTwins);
      if (!s.rounds) continue;
      s.effect = Distance(forks_.Of(s.fork(), SpecOf(PrecisionOf(s))), AsItWas());
      s.significant = StandsOut(s, run);
      if (s.significant) continue;
      // If a suspect has few bits, the twins of the run are perturbed by much and end far away. If
      // the suspect itself has these few bits, twins of its own fork measure chance without it.
      const Reference without{s.fork(), PrecisionOf(s), Without(s, kUnit)};
      if (Without(s, kNarrowest) != narrowest ||
          without.precision.masters.format != precision.masters.format)
        s.significant = StandsOut(s, without);
    }
    std::stable_sort(suspects.begin(), suspects.end(), [](const Suspect& a, const Suspect& b) {
      return std::tie(a.significant, a.effect) > std::tie(b.significant, b.effect);
    });
  }

 private:
  static constexpr Of kUnit = &run::ForkLayer::unit, kNarrowest = &run::ForkLayer::narrowest;

  config::PrecisionConfig PrecisionOf(const Suspect& s) const {
    return Freed(source_.config().precision, s);
  }
  // Those of the formats that are left without it. A layer that it puts into fp32 has what most
  // others have, where its own is finer: it is no less subject to chance than they are.
  Units Without(const Suspect& suspect, Of of) const {
    Units units = UnitsOf(source_.Layers(PrecisionOf(suspect)), of), others = units;
    for (const std::string& layer : suspect.layers) others.erase(layer);
    const NumberFormat usual = UsualUnit(others);
    for (const std::string& layer : suspect.layers) {
      const auto unit = units.find(layer);
      if (unit != units.end() && unit->second.mantissa_bits > usual.mantissa_bits)
        unit->second = usual;
    }
    return units;
  }
  bool StandsOut(Suspect& s, const Reference& reference) {
    s.noise = Floor(reference, kTwins);
    // Four twins give a rough floor; only a result that is near it is worth eight more.
    if (s.effect > kTimesNoise * s.noise && s.effect < kClear * s.noise)
      s.noise = Floor(reference, kMoreTwins);
    return s.effect > kTimesNoise * s.noise;
  }
  static std::string TwinOf(const Reference& reference, std::uint64_t twin) {
    return reference.name + ", twin " + std::to_string(twin);
  }
  void ExpectTwins(const Reference& reference, std::uint64_t twins) {
    for (std::uint64_t twin = 1; twin <= twins; ++twin) forks_.Expect(TwinOf(reference, twin));
  }
  // How far the furthest of a fork's twins ends from it.
  double Floor(const Reference& reference, std::uint64_t twins) {
    const run::ForkResult& fork = forks_.Of(reference.name, SpecOf(reference.precision));
    ExpectTwins(reference, twins);
    double furthest = 0;
    for (std::uint64_t twin = 1; twin <= twins; ++twin) {
      run::ForkSpec spec = SpecOf(reference.precision);
      spec.twin = twin;
      spec.units = reference.units;
      const run::ForkResult& moved = forks_.Of(TwinOf(reference, twin), spec);
      furthest = std::max(furthest, Distance(moved, fork));
    }
    return furthest;
  }

  const run::ForkSource& source_;
  Forks& forks_;
};

}  // namespace

std::string Judge(const run::ForkSource& source, const BlameOptions& options,
                  std::vector<Suspect>& suspects, telemetry::Log& log) {
  Forks forks(source, options, log);
  Trial trial(source, forks);
  trial.Run(suspects);
  return trial.AsItWas().trouble;
}

}  // namespace ada::study
