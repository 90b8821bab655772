// What the names of formats in a run's logs do not say: by which mode a tensor was rounded, and
// whether it saturated at its format's largest value.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "judge/scale_path.h"
#include "number/table_grid.h"

namespace ada::judge {

// As graph/network/precision.h and tensor_storage.h decide it, from the run's configuration, which
// must outlive it.
class StoredFormats {
 public:
  explicit StoredFormats(const config::Config& config);

  // Whether gradients carry a per-tensor scale on top of the policy's S.
  bool scales_gradients() const { return scales_tensors_ && !policy_owns_gradients_; }
  // The format of this name that a stored tensor had in this step.
  NumberFormat Find(std::int64_t step, const std::string& layer, const std::string& tensor,
                    const NumberFormat& named);

 private:
  bool Saturates(std::int64_t step, const std::string& layer, const std::string& tensor,
                 const NumberFormat& format) const;
  bool IsWritten(std::int64_t step, const std::string& layer, const std::string& tensor,
                 const NumberFormat& format) const;

  const config::PrecisionConfig& precision_;
  bool scales_tensors_, policy_owns_gradients_;
  struct SincePrecision {
    std::int64_t from_step;
    config::PrecisionConfig precision;
  };
  std::vector<SincePrecision> written_;  // by rising step; empty where no format says saturate
  std::unique_ptr<ScalePath> path_;      // null then
  std::int64_t modes_step_ = -1;
  TableModes modes_;  // of that step
};

// Whether a run rounds stochastically, or by the sign of values, in some of its steps.
bool RoundsStochastically(const config::PrecisionConfig& precision);
bool RoundsBySign(const config::PrecisionConfig& precision);

}  // namespace ada::judge
