// Forks of a run: the same training goes on in memory from one checkpoint (or from its start), on
// the same batches, with other formats or with weights that are moved a little. Nothing is written.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/assemble.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {

// What is to be different, and what is to be looked at.
struct ForkSpec {
  config::PrecisionConfig precision;
  std::int64_t steps = 1;
  bool gradients = false;  // the weight gradients of the last step are wanted
  // Not 0: every trained parameter is moved by up to half a unit in the last place of its layer's
  // format in `units` (fp32 where that has none), uniformly; the numbers depend on this.
  std::uint64_t twin = 0;
  std::map<std::string, NumberFormat> units;
};

struct ForkResult {
  std::vector<double> losses;                 // of each step; what is not finite stays so
  std::vector<std::string> names;             // of the parameters; where gradients are wanted
  std::vector<std::vector<float>> gradients;  // unscaled, in the order of names
};

// A layer that rounds, and the format in which its weights (where it has none: its output) lie.
struct ForkLayer {
  std::string name;
  NumberFormat unit;
  bool rounds = false;  // anything of it lies in another format than fp32
};

class ForkSource {
 public:
  // A source at the newest checkpoint in the folder of a run. threads 0: as the run. DataError
  // where the folder holds no checkpoint, and what reading the run's data throws.
  static ForkSource OfRun(const std::string& folder, int threads);
  // A source at the start of a training with this configuration.
  static ForkSource OfConfig(const config::Config& config);

  // Its precision is that of the step after step(), which all steps of a fork have.
  const config::Config& config() const { return config_; }
  std::int64_t step() const { return from_ ? from_->state.step : 0; }
  std::string stem() const { return from_ ? from_->stem : ""; }  // of the checkpoint; "": none

  // The layers in the order of the network, under the run's formats.
  std::vector<ForkLayer> Layers() const;
  // Throws ConfigError where the formats do not suit the network.
  ForkResult Run(const ForkSpec& spec) const;

 private:
  ForkSource(config::Config config, std::optional<ResumePoint> from);

  config::Config config_;
  std::optional<ResumePoint> from_;
  bool switched_ = false;  // precision.schedule: the precision changes after step()
  RunData data_;
};

}  // namespace ada::train
