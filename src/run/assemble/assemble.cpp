// From the section `device` to a backend. What concerns data is in run_data.cpp.
#include "run/assemble/assemble.h"

#include <algorithm>
#include <utility>

#include "backend/compare/compare_backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/cores.h"
#include "io/text.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {

// Decides in this order: how many threads, which GPU in a run of several processes, whether there
// is a usable GPU at all, and what device.fp8 needs; then makes the backend. Under `auto` a missing
// GPU means that the CPU is used, under `cuda` it is an error.
ChosenBackend MakeBackend(const config::DeviceConfig& device, step::Team& team) {
  using config::DeviceKind;
  const bool several = team.ranks() > 1;
  if (device.compare && several)
    throw ConfigError(
        "device.compare: true compares the ops of one process; start it alone, without mpirun");
  ChosenBackend chosen;
  chosen.threads = device.threads > 0 ? device.threads
                   : several          ? parallel::CoresOf(team.world())
                                      : UsableCores();
  const bool is_auto = device.kind == DeviceKind::kAuto;
  int index = device.index;
  std::string why_not;
  if (several && device.kind != DeviceKind::kCpu) {
    const DeviceOfSeveral own = FindDevice(device, team);
    index = own.index, why_not = own.why_not;
    if (!is_auto && !why_not.empty()) throw DeviceError("device.kind: cuda: " + why_not);
  } else if (is_auto) {
    why_not = backend::WhyNoCuda(index);
  }
  const bool cuda = device.kind == DeviceKind::kCuda || (is_auto && why_not.empty());
  const bool fp8_hardware = device.fp8 == config::Fp8Products::kHardware;
  if (fp8_hardware && !cuda)
    throw DeviceError("device.fp8: hardware: the CPU has no units for fp8; use device.kind: cuda" +
                      (is_auto ? " (auto took the CPU: " + why_not + ")" : "") +
                      " or device.fp8: emulated");
  if (cuda)
    chosen.backend = backend::MakeCudaBackend(
        index, {device.autotune, device.deterministic, fp8_hardware}, team.communicators());
  else
    chosen.backend = backend::cpu::MakeCpuBackend(chosen.threads, team.communicators());
  chosen.has_own_memory = cuda;
  // The second backend computes each op on the CPU as well; in this mode a run stops where the two
  // differ (backend/compare).
  if (device.compare) {
    backend::CompareOptions options{cuda ? "cuda" : "cpu", "cpu", 1, nullptr, fp8_hardware};
    if (cuda) options.slack = 8;  // tensor cores cut off low bits of products that they add
    chosen.backend = backend::MakeCompareBackend(
        std::move(chosen.backend), backend::cpu::MakeCpuBackend(chosen.threads), options);
  }
  chosen.reason = chosen.backend->Describe();
  if (is_auto)  // the reason matters only to users who ask for cuda
    chosen.reason +=
        ": device auto, and " + (cuda ? "it works" : why_not.substr(0, why_not.find(';')));
  return chosen;
}

// --- Class weights ---

bool ComputesClassWeights(const config::Config& config) {
  return config.train.class_weights.kind == config::ClassWeightsConfig::Kind::kMedianFrequency;
}

ClassWeights ComputeClassWeights(const config::Config& config, const RunData& data) {
  const std::vector<std::string> names = NamesOfClasses(config, data);
  ClassWeights weights;
  std::vector<int> unseen;
  const bool skips = config.data.on_broken == config::BrokenImages::kSkip;
  weights.values = data::MedianFrequencyWeights(data.train, data::UnseenClass::kWeightOne, &unseen,
                                                skips ? &weights.left_out : nullptr);
  const auto counted = data.train.images() - static_cast<std::int64_t>(weights.left_out.size());
  // Outputs beyond the classes of the data set, which no pixel has either.
  weights.values.resize(static_cast<std::size_t>(config.model.classes), 1);
  weights.text = "class weights (median_frequency of " + Counted(counted, "label image") + "):";
  for (std::size_t k = 0; k < weights.values.size(); ++k)
    weights.text += (k == 0 ? " " : ", ") + ClassName(names, static_cast<int>(k)) + " " +
                    Formatted("%.4g", weights.values[k]);
  for (const int label : unseen)
    weights.warnings.push_back("train.class_weights: no training pixel is of class " +
                               ClassName(names, label) + "; its weight is 1");
  return weights;
}

// From the newest on, the first that can be read.
std::vector<double> StoredClassWeights(const std::string& run_folder) {
  const std::string folder = run_folder + "/checkpoints";
  for (const std::int64_t step : ListCheckpoints(folder).paired) {
    try {
      return ReadCheckpointState(CheckpointStem(folder, step)).class_weights;
    } catch (const DataError&) {  // the search for a checkpoint to resume from reports the problem
    }
  }
  return {};
}

// --- Splits without a target ---

std::vector<SplitWithoutTargets> FindSplitsWithoutTargets(const config::Config& config,
                                                          data::Splits splits) {
  std::vector<SplitWithoutTargets> found;
  if (!splits.train.tokens) return found;
  const config::DataConfig& d = config.data;
  data::Limit(splits.train, d.limit.train);
  data::Limit(splits.test, d.limit.test);
  const data::HeldBack held_back{d.validation, d.validation_share, config.seed};
  const bool holds_back = held_back.any() && !data::FactsOf(d.dataset).has_tokens();
  if (holds_back && held_back.Of(splits.train.images()) < splits.train.images())
    splits.validation = data::SplitOff(splits.train, held_back);
  for (const auto& [name, split] :
       {std::pair<const char*, const data::Dataset*>("train", &splits.train),
        {"validation", &splits.validation},
        {"test", &splits.test}}) {
    if (split->images() == 0) continue;
    const std::string why = split->tokens->WhyNoTarget();
    if (!why.empty())
      found.push_back({name, why + " in split " + name + "; expected a target or more"});
  }
  return found;
}

void RequireTargets(const config::Config& config, const data::DatasetInfo& info) {
  if (!info.found) return;
  for (const SplitWithoutTargets& split : FindSplitsWithoutTargets(config, *info.found))
    throw DataError(split.text);
}

}  // namespace ada::run
