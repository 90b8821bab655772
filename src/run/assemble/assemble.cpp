// From the section `device` to a backend; run_data.cpp does the same for data. All processes
// compute the same assignment of devices from the same gathered lists, so that no further message
// is needed.
#include "run/assemble/assemble.h"

#include <algorithm>
#include <utility>

#include "backend/compare/tolerances.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/machine.h"
#include "io/text.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {
namespace {

VisibleDevices DevicesHere() {
  VisibleDevices visible;
  const std::vector<backend::CudaDeviceId> ids = backend::VisibleCudaDevices();
  visible.count = std::min(static_cast<int>(ids.size()), VisibleDevices::kMost);
  std::copy_n(ids.begin(), visible.count, visible.ids.begin());
  return visible;
}

std::string NoneLeftText(const parallel::World& world, int seen, int first) {
  const int here = parallel::RanksOfNode(world);
  return "the " + std::to_string(here) +
         " processes of this host take a GPU each, and this one sees " + std::to_string(seen) +
         (first > 0 ? " (from cuda:" + std::to_string(first) + " on)" : "") +
         ", of which none is left; start fewer here (mpirun --map-by ppr:" +
         std::to_string(std::max(1, seen - first)) + ":node), or use device.kind: cpu";
}

}  // namespace

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

// Greedy in the order of ranks. Devices are compared by their ids, because one device may have
// different numbers in different processes.
std::vector<int> AssignDevices(const std::vector<VisibleDevices>& visible,
                               const std::vector<int>& nodes, int first) {
  std::vector<int> taken(visible.size(), -1);
  const auto is_free = [&](std::size_t rank, const backend::CudaDeviceId& id) {
    for (std::size_t lower = 0; lower < rank; ++lower)
      if (nodes[lower] == nodes[rank] && taken[lower] >= 0 &&
          visible[lower].ids[static_cast<std::size_t>(taken[lower])] == id)
        return false;
    return true;
  };
  for (std::size_t rank = 0; rank < visible.size(); ++rank)
    for (int index = first; index < visible[rank].count && taken[rank] < 0; ++index)
      if (is_free(rank, visible[rank].ids[static_cast<std::size_t>(index)])) taken[rank] = index;
  return taken;
}

// Every process takes part in both messages, also one that sees no device: none may leave early.
DeviceOfSeveral FindDevice(const config::DeviceConfig& device, step::Team& team) {
  const VisibleDevices mine = DevicesHere();
  const std::vector<VisibleDevices> all = parallel::GatherAll(team.all(), mine);
  DeviceOfSeveral found;
  found.index =
      AssignDevices(all, team.world().nodes(), device.index)[static_cast<std::size_t>(team.rank())];
  std::string why_not;
  if (mine.count == 0)
    why_not = backend::WhyNoCuda(device.index);
  else if (found.index < 0)
    why_not = NoneLeftText(team.world(), mine.count, device.index);
  else
    why_not = backend::WhyNoCuda(found.index);
  if (why_not.empty()) why_not = backend::WhyNoCudaLink();
  const std::vector<std::string> reasons = team.AllGatherText(why_not);
  for (std::size_t rank = 0; rank < reasons.size() && found.why_not.empty(); ++rank)
    if (!reasons[rank].empty())
      found.why_not = team.NameOf(static_cast<int>(rank)) + ": " + reasons[rank];
  return found;
}

}  // namespace ada::run
