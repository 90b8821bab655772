// Forks of a run: the same training goes on in memory from one checkpoint (or from its start), on
// the same batches, with other formats or with weights that are moved a little. Nothing is written.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/assemble/assemble.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {

// What is to be different, and what is to be looked at.
struct ForkSpec {
  config::PrecisionConfig precision;
  std::int64_t steps = 1;
  bool gradients = false;  // the weight gradients of the last step are wanted
  // Not 0: every trained parameter is moved by up to half a unit in the last place of its layer's
  // format in `units` (fp32 where that has none) or of the masters', whichever is the larger, and
  // rounded by chance to a neighbor in the masters' format, which would swallow such a move if it
  // rounded to the nearest. The numbers depend on this.
  std::uint64_t twin = 0;
  std::map<std::string, NumberFormat> units;
};

// The losses always have ForkSpec::steps entries: where the policy ended the fork early the rest
// are NaN.
struct ForkResult {
  std::vector<double> losses;                 // of each step; what is not finite stays so
  std::vector<std::string> layers;            // of the parameters; where gradients are wanted
  std::vector<std::vector<float>> gradients;  // unscaled, in the order of `layers`
  // What kept it from training, with the first tensor that was not finite, to follow "it": losses
  // that are not finite, steps of which every one is skipped, gradients that are wanted and not
  // finite, an end by the policy. Empty: nothing did.
  std::string trouble;
};

// A layer under some formats.
struct ForkLayer {
  std::string name;
  bool trained = false;     // it has trained parameters of its own
  bool has_weight = false;  // its products take operands (precision.operands)
  bool rounds = false;      // an entry of precision.layers for it alone can round less
  // In which its weights are multiplied; where that is fp32, or it multiplies none, its output is
  // stored.
  NumberFormat unit = kFp32;
  NumberFormat narrowest = kFp32;  // of all that is rounded of it, the format with the fewest bits
  NumberFormat activations = kFp32, weights = kFp32, gradients = kFp32;  // as they are stored
};

// Made once by a study command (study/blame, study/assign), which calls Run for each variant; every
// call is independent of the others and leaves the source as it is. It owns the data of the run,
// which are read once.
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

  // The layers in the order of the network.
  std::vector<ForkLayer> Layers(const config::PrecisionConfig& precision) const;
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
