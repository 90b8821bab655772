// What a folder holds of checkpoints, and what of it goes.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <string_view>

#include "io/file.h"
#include "run/checkpoint/checkpoint.h"

namespace ada::run {
namespace {

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
