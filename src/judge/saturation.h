// Which tensors of a run saturate at their format's largest value, which the names of formats in
// its logs do not say.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "judge/scale_path.h"

namespace ada::judge {

// As graph/network/precision.h and tensor_storage.h decide it, from the run's configuration.
class Saturation {
 public:
  explicit Saturation(const config::Config& config);

  // Whether gradients carry a per-tensor scale on top of the policy's S.
  bool scales_gradients() const { return scales_tensors_ && !policy_owns_gradients_; }
  // `format`: that of a stored tensor in this step.
  bool Of(std::int64_t step, const std::string& layer, const std::string& tensor,
          const NumberFormat& format) const;

 private:
  bool IsWritten(std::int64_t step, const std::string& layer, const std::string& tensor,
                 const NumberFormat& format) const;

  config::OverflowKind overflow_;
  bool scales_tensors_, policy_owns_gradients_;
  struct Part {
    std::int64_t from_step;
    config::PrecisionConfig precision;
  };
  std::vector<Part> parts_;          // by rising step; none where no format is written so
  std::unique_ptr<ScalePath> path_;  // null then
};

}  // namespace ada::judge
