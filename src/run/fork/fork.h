// Forks of a run: the same training is continued in memory from one checkpoint (or from its start),
// on the same batches, with other formats or slightly perturbed weights. Nothing is written.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"
#include "run/fork/fork_spec.h"

namespace ada::run {

// The layers that a network for such images (n is ignored) has with this precision, in its order.
// `config`: complete but for its precision.
std::vector<ForkLayer> LayersOf(config::Config config, const Shape& image,
                                const config::PrecisionConfig& precision);

// Writes the weights with which a training starts, each moved as ForkSpec::twin moves those of a
// fork whose layers all have the format `unit`, as a safetensors file for model.init.weights: the
// training that starts from it is a twin of the other. `twin`: not 0.
void WriteTwinStart(const config::Config& config, const Shape& image, std::uint64_t twin,
                    const NumberFormat& unit, const std::string& path);

// Made once by a study command (study/blame, study/assign), which calls Run for each variant; every
// call is independent of the others and leaves the source as it is. It owns the data of the run,
// which are read once.
class ForkSource {
 public:
  // A source at the newest checkpoint in the folder of a run, which may go on and delete it: its
  // files are held open. threads 0: as the run. DataError where the folder holds no checkpoint, and
  // what reading the run's data throws.
  static ForkSource OfRun(const std::string& folder, int threads);
  // A source at the start of a training with this configuration.
  static ForkSource OfConfig(const config::Config& config);

  // With the precision of the step after step(), which all steps of a fork use.
  const config::Config& config() const { return config_; }
  std::int64_t step() const { return from_ ? from_->state.step : 0; }
  // A text that differs where the checkpoint does, or a file of the data (by name, size or time).
  std::string Identity() const;

  // The layers in the order of the network.
  std::vector<ForkLayer> Layers(const config::PrecisionConfig& precision) const;
  // Throws ConfigError where the formats do not suit the network.
  ForkResult Run(const ForkSpec& spec) const;

 private:
  ForkSource(config::Config config, std::optional<ResumePoint> from);

  config::Config config_;
  std::optional<ResumePoint> from_;
  std::string checkpoint_hash_;
  bool switched_ = false;  // precision.schedule: the precision changes after step()
  data::DatasetInfo info_;
  RunData data_;
};

}  // namespace ada::run
