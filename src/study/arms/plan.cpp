// Which trainings there are, and the configuration of each, as a file that `train` reads.
#include <algorithm>
#include <cctype>

#include "config/load.h"
#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "io/machine.h"
#include "judge/serving.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/protect_data.h"
#include "run/fork/fork.h"
#include "step/specs.h"
#include "study/arms/arms.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {

constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 24;
// Two twins are the fewest whose distances have a spread.
constexpr std::uint64_t kFewestTwins = 2;
constexpr std::int64_t kLoggedSteps = 20;  // of a training, at most: those that are counted

// The mean bits of an operand of the network's matmuls, over all values of a step.
double OperandBits(const config::Config& config, const Shape& image) {
  double bits = 0, values = 0;
  for (const run::ForkLayer& layer : run::LayersOf(config, image, config.precision))
    for (std::size_t k = 0; k < kOperands; ++k) {
      const run::ForkOperand& operand = layer.operands[k];
      const double each = static_cast<double>(operand.values) *
                          (IsWeight(static_cast<Operand>(k)) ? 1 : config.data.batch_size);
      bits += each * judge::BitsOf(operand.format);
      values += each;
    }
  return values > 0 ? bits / values : NAN;
}

// A training that stands in the folder already goes on, or is taken as it is, where it is the same
// but for its steps.
void RefuseOther(const Training& training, const std::string& out) {
  if (!IsThere(training.file)) return;
  const std::string text = ReadFile<ConfigError>(training.file, kMostConfigBytes);
  config::Config stored = config::LoadText(text, training.file, {}).config;
  config::FillDefaults(stored);
  const std::vector<std::string> conflicts = config::ResumeConflicts(stored, training.config);
  if (conflicts.empty()) return;
  throw ConfigError("--out " + out + ": holds trainings of another question, of " + training.name +
                    " " + conflicts.front() + "; expected another folder");
}

// A run alone writes into its folder, and a folder among a data set's would be one of its classes.
void RefusePlace(const std::string& out, const config::Config& base) {
  std::string run = telemetry::RunThatKeeps(out);
  std::vector<std::string> names;  // of a folder that cannot be read CreateFolders tells
  if (TryListFolder(out, &names).words.empty() && !names.empty()) {
    const telemetry::FolderState state = telemetry::InspectRunFolder(out);
    if (state == telemetry::FolderState::kFinished || state == telemetry::FolderState::kUnfinished)
      run = out;
  }
  if (!run.empty())
    throw ConfigError("--out " + out + ": belongs to the run in " + run +
                      ", which alone writes there; expected another folder");
  config::Config placed = base;
  placed.output = out;
  placed.places.erase("output");
  run::ProtectFoldersOfData(placed);
}

// Builds the list of trainings, one after the other.
class Planner {
 public:
  Planner(const ArmsQuestion& question, ArmPlan& plan)
      : question_(question), options_(question.options), plan_(plan) {}

  void Run() {
    plan_.command = question_.command;
    plan_.arms = question_.arms;
    // The name, the seed and the data are those of the configuration as it is.
    config::Config base = Read(plan_.arms.front(), {});
    plan_.out = options_.out.empty() ? question_.folder + "/" + base.name : options_.out;
    RefusePlace(plan_.out, base);
    info_ = run::InspectData(base);
    image_ = {1, info_.height, info_.width, info_.channels};
    plan_.full_steps = Steps(base);
    plan_.steps = options_.steps > 0 ? options_.steps : plan_.full_steps;
    for (int i = 0; i < options_.seeds; ++i)
      plan_.seeds.push_back(base.seed + static_cast<std::uint64_t>(i));
    const std::uint64_t twins = std::max<std::uint64_t>(kFewestTwins, plan_.seeds.size());
    const std::size_t all =
        plan_.arms.size() * plan_.seeds.size() + question_.twinned.size() * twins;
    const int cores = UsableCores();
    // Trainings on a GPU take turns: each would have its memory for itself.
    const bool on_gpu = base.device.kind == config::DeviceKind::kCuda;
    const std::size_t most = on_gpu ? 1 : std::min(all, static_cast<std::size_t>(cores));
    plan_.jobs = options_.jobs > 0 ? options_.jobs : static_cast<int>(most);
    threads_ = std::max(1, cores / plan_.jobs);
    // Seed by seed, so that a table of the first seed is there early.
    for (std::size_t seed = 0; seed < plan_.seeds.size(); ++seed)
      for (std::size_t arm = 0; arm < plan_.arms.size(); ++arm) Add(arm, seed, 0);
    for (const std::size_t arm : question_.twinned)
      for (std::uint64_t twin = 1; twin <= twins; ++twin)
        Add(arm, (twin - 1) % plan_.seeds.size(), twin);
    for (std::size_t arm = 0; arm < plan_.arms.size(); ++arm)
      plan_.bits.push_back(OperandBits(Complete(plan_.trainings[arm].config), image_));
  }
  const Shape& image() const { return image_; }
  // What a training makes of its configuration, with what only the data tell.
  config::Config Complete(const config::Config& config) const {
    return run::Completed(config, info_);
  }

 private:
  std::int64_t Steps(const config::Config& config) const {
    return step::TotalSteps(Complete(config), step::StepsPerEpoch(config, info_.train));
  }

  config::Config Read(const Arm& arm, const config::Overrides& more) const {
    config::Overrides all = arm.keys;
    all.insert(all.end(), options_.keys.begin(), options_.keys.end());
    all.insert(all.end(), more.begin(), more.end());
    try {
      config::Config config = config::Load(options_.config, all).config;
      config::FillDefaults(config);
      if (!arm.precision) return config;
      // Read back, since what is taken out of a section may leave it without something it needs.
      config.precision = *arm.precision;
      config = config::LoadText(config::ToYaml(config), options_.config, {}).config;
      config::FillDefaults(config);
      return config;
    } catch (const ConfigError& error) {
      throw ConfigError("arm " + arm.name + ": " + error.what());
    }
  }

  void Add(std::size_t arm, std::size_t seed, std::uint64_t twin) {
    Training training;
    training.arm = arm, training.seed = seed, training.twin = twin;
    training.name = plan_.arms[arm].folder + "-seed" + std::to_string(plan_.seeds[seed]);
    if (twin > 0) training.name += "-twin" + std::to_string(twin);
    training.folder = plan_.out + "/" + training.name;
    training.file = plan_.out + "/configs/" + training.name + ".yaml";
    config::Overrides keys = {{"seed", std::to_string(plan_.seeds[seed])},
                              {"train.max_steps", std::to_string(plan_.steps)},
                              {"output", config::YamlText(training.folder)},
                              {"name", config::YamlText(training.name)}};
    training.config = Read(plan_.arms[arm], keys);
    config::Config& config = training.config;
    if (config.device.threads == 0 || plan_.jobs > 1) config.device.threads = threads_;
    const std::int64_t often = std::max<std::int64_t>(1, plan_.steps / kLoggedSteps);
    if (config.log.every == 0 || config.log.every > often) config.log.every = often;
    config.log.histogram_every = 0;
    config.log.what_if.clear();
    config.checkpoint.best = false;
    if (twin > 0) config.model.init.weights = training.folder + ".safetensors";
    if (Steps(config) < plan_.steps)
      throw ConfigError("--steps " + std::to_string(plan_.steps) + ": " + options_.config +
                        " ends after " + std::to_string(plan_.full_steps) +
                        " steps; expected no more, or more epochs by --set train.epochs=N");
    RefuseOther(training, plan_.out);
    plan_.trainings.push_back(std::move(training));
  }

  const ArmsQuestion& question_;
  const ArmsOptions& options_;
  ArmPlan& plan_;
  data::DatasetInfo info_;
  Shape image_{};
  int threads_ = 1;
};

}  // namespace

std::string FolderWord(const std::string& text) {
  std::string word;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '+' ||
                       c == '.' || c == '-';
    if (plain)
      word += c;
    else if (!word.empty() && word.back() != '-')
      word += '-';
  }
  while (!word.empty() && (word.back() == '-' || word.back() == '.')) word.pop_back();
  word.erase(0, std::min(word.find_first_not_of("-."), word.size()));
  return word.empty() ? "arm" : word;
}

ArmPlan PlanTrainings(const ArmsQuestion& question, telemetry::Log& log) {
  ArmPlan plan;
  Planner planner(question, plan);
  planner.Run();
  CreateFolders(plan.out + "/configs");
  for (const Training& training : plan.trainings) {
    WriteFileAtomically(training.file, config::ToYaml(training.config));
    // The moved weights are the same in every try, so those that are there stay.
    if (training.twin == 0 || IsThere(training.config.model.init.weights)) continue;
    log.SetStatus(plan.command + ": weights of twin " + std::to_string(training.twin));
    config::Config config = planner.Complete(training.config);
    config.model.init.weights =
        plan.trainings[training.seed * plan.arms.size() + training.arm].config.model.init.weights;
    run::WriteTwinStart(config, planner.image(), training.twin, kBf16,
                        training.config.model.init.weights);
  }
  log.SetStatus("");
  return plan;
}

}  // namespace ada::study
