// What of a run was counted and what that lost, in one sentence that every command, the summary and
// the report say alike: a negative is said of what was counted alone, and names what was not.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "telemetry/totals.h"

namespace ada::telemetry {

struct Coverage {
  std::vector<std::string> counted;         // words of log.statistics, and master and state
  std::vector<std::int64_t> counted_steps;  // with rows, of each of them
  std::vector<std::string> uncounted;       // words whose tensors were rounded and have no rows
  std::int64_t logged_steps = 0, steps = 0;

  // "dx and dy, 11 of 250 steps; operands, 5 of 250 steps; not counted: y and w (log.statistics)":
  // what a schedule rounds later, or a resumed run has logged anew, has steps of its own.
  std::string Text() const;
};

// `uncounted`: as config::UncountedStatistics says, of which words with rows are left out. `steps`:
// of the run; a later logged step counts where steps.csv lost its last rows.
Coverage CoverageOf(const LayerTotals& layers, std::int64_t steps,
                    const std::vector<std::string>& uncounted);

// The tensor that lost most on the mean over the logged steps; null: none lost a value, or none was
// counted. Changes of weights (update) are not asked: what they lose is not lost on the way.
const TensorTotals* LostMost(const LayerTotals& layers);

// Whether rows of the tensor count changes without effect, not values that become zero.
bool IsOfChanges(std::string_view tensor);

// "23.042 % on the mean, 31.300 % at most", of the logged steps.
std::string LostShares(const TensorTotals& tensor);

// "lm_head.dx.dy lost most, 23.042 % on the mean, 31.300 % at most, of dx and operands, 11 of 250
// steps", or "no value was lost of ...", with the tensors that held inf or NaN, or that nothing was
// counted. Changes that were without effect have a clause of their own.
std::string LostText(const LayerTotals& layers, const Coverage& coverage);

}  // namespace ada::telemetry
