// Processes that compute with different data or programs would silently diverge, because only
// gradients are exchanged. Hashes are compared, so that messages are small.
#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "config/load.h"
#include "error.h"
#include "io/data_files.h"
#include "io/hash.h"
#include "run/about/about.h"
#include "run/assemble/assemble.h"
#include "step/weight_values.h"

namespace ada::run {
namespace {

// Keys that may differ between processes.
constexpr std::array<std::string_view, 6> kOwn = {
    "output", "name", "device.threads", "data.path", "data.more_paths", "data.workers"};

template <class T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

// Labels and titles of all images; of at most kLooked, evenly spread, what is in them: pixels, or
// the size of the file.
std::string HashOfImages(const data::Dataset& set) {
  // Enough images to detect another data set, and few enough not to delay the start.
  constexpr std::int64_t kLooked = 4096;
  Hasher hasher;
  const std::vector<std::int64_t> sizes = {set.images(), set.height, set.width, set.channels};
  hasher.Update(BytesOf(sizes));
  hasher.Update(BytesOf(set.labels));
  if (set.tokens) {
    hasher.Update(BytesOf(data::SampleOf(*set.tokens)));
    return hasher.Hex();
  }
  const auto values = static_cast<std::size_t>(set.height) * static_cast<std::size_t>(set.width) *
                      static_cast<std::size_t>(set.channels);
  const std::int64_t step = (set.images() + kLooked - 1) / kLooked;
  const std::byte* floats = set.store ? set.store->Floats() : nullptr;
  for (std::int64_t image = 0; image < set.images(); ++image) {
    const bool looks = image % step == 0;
    const std::int64_t number = set.store ? set.NumberInFiles(image) : image;
    if (set.bytes() != nullptr) {
      const auto at = static_cast<std::size_t>(image) * values;
      if (looks) hasher.Update(std::as_bytes(std::span(set.bytes() + at, values)));
    } else if (floats != nullptr) {
      const std::size_t bytes = values * sizeof(float);
      if (looks) hasher.Update({floats + static_cast<std::size_t>(number) * bytes, bytes});
    } else if (set.store) {
      const std::string title = set.store->TitleOf(number);
      hasher.Update(std::as_bytes(std::span(title.data(), title.size())));
      std::vector<std::uint64_t> size(1);
      if (looks) size[0] = BytesOfFile(set.store->NameOf(number));
      hasher.Update(BytesOf(size));
    }
  }
  return hasher.Hex();
}

std::string HashOfWeights(const graph::Graph& graph, backend::Backend& backend) {
  Hasher hasher;
  for (const graph::Parameter& p : graph.parameters())
    hasher.Update(BytesOf(step::HostValues(p.value, backend)));
  return hasher.Hex();
}

// The first process whose text differs from that of rank 0; -1: all are equal.
int FirstThatDiffers(const std::vector<std::string>& texts) {
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0]) return static_cast<int>(rank);
  return -1;
}

}  // namespace

void CheckConfigConsistency(const config::Config& config, step::Team& team) {
  const std::vector<std::string> texts = team.AllGatherText(config::ToYaml(config));
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto read = [](const std::string& text) {
      return config::LoadText(text, "another process", {}).config;
    };
    const std::vector<std::string> different =
        config::Differences(read(texts[0]), read(texts[rank]), [](std::string_view key) {
          return std::find(kOwn.begin(), kOwn.end(), key) != kOwn.end();
        });
    if (different.empty()) continue;
    std::string message =
        "the configuration of " + team.NameOf(static_cast<int>(rank)) + " is not that of rank 0:";
    for (const std::string& line : different) message += "\n  " + line;
    throw ConfigError(message + "\nstart all processes with the same file and options");
  }
}

// A folder that is not shared gives each host its own newest checkpoint, or none.
void CheckContinuation(std::int64_t step, bool done, step::Team& team) {
  const std::vector<std::string> found = team.AllGatherText(
      (step < 0 ? "no checkpoint" : "a checkpoint of step " + std::to_string(step)) +
      (done ? " of a finished run" : ""));
  const int other = FirstThatDiffers(found);
  if (other >= 0)
    throw DataError(team.NameOf(other) + " found " + found[static_cast<std::size_t>(other)] +
                    ", rank 0 " + found[0] + ": the run's folder has to be one that all hosts see");
}

void CheckConsistency(const RunData& data, const graph::Graph& graph, backend::Backend& backend,
                      step::Team& team) {
  std::string versions;
  for (const Version& version : Versions())
    if (version.name != "compiler" && version.name != "mpi")
      versions += version.name + " " + version.value + ", ";
  // The compiler and the MPI library may differ where the rest is equal; versions and instructions
  // decide which kernels run, and so which bits they give.
  int other = FirstThatDiffers(team.AllGatherText(versions + backend.InstructionSet()));
  if (other >= 0)
    throw DeviceError(team.NameOf(other) +
                      " runs another build of this program, or its processor has other "
                      "instructions, than rank 0: processes would compute different weights; "
                      "take equal machines (`ada-train --version`, `lscpu`)");
  other = FirstThatDiffers(team.AllGatherText(
      HashOfImages(data.train) + HashOfImages(data.validation) + HashOfImages(data.test)));
  if (other >= 0)
    throw DataError("the images, labels or tokens of " + team.NameOf(other) +
                    " are not those of rank 0: data.path has to hold the same files on every "
                    "host");
  other = FirstThatDiffers(team.AllGatherText(HashOfWeights(graph, backend)));
  if (other >= 0)
    throw DataError("the weights with which " + team.NameOf(other) +
                    " starts are not those of rank 0: model.init.weights or the checkpoint "
                    "differs");
}

}  // namespace ada::run
