// Where the attempts of `replay` come from: files (trace.cpp, foreign_log.cpp, source.cpp), or a
// pattern. replay.cpp drives the policy with them.
#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scaling/policies/policy.h"
#include "study/commands.h"

namespace ada::study {

// An attempt as another program's record has it, and its scale there if known. Without a recorded
// scale nothing is compared, but the attempt still counts.
struct RecordedAttempt {
  bool overflow = false;
  double amax = 0;                           // largest unscaled gradient; where it is asked for
  std::optional<double> scale, scale_after;  // of the attempt, and of the next
};

// What a trace is read from: a file, or a pipe or device, whose bytes are kept in memory up to a
// bound. It can be read again and again, but only by one reader at a time.
class TraceSource {
 public:
  // `-`: standard input. DataError where it cannot be read, or a pipe gives too much.
  explicit TraceSource(const std::string& path);
  ~TraceSource();
  TraceSource(const TraceSource&) = delete;
  const std::string& name() const { return name_; }
  // A descriptor for another reading, which closes it.
  int FromStart() const;
  // Calls `take` with each line that is not empty; false: one is longer than any row of a CSV, and
  // the rest is not looked at.
  bool ForLines(const std::function<void(std::string_view)>& take) const;

 private:
  int fd_ = -1;
  std::int64_t begin_ = 0;
  std::string name_;
};

// The attempts in a log of DeepSpeed, Megatron or apex; none: it is not such a log. `notes`: what
// the log does not contain.
struct ForeignLog {
  std::vector<RecordedAttempt> attempts;
  std::vector<std::string> notes;
};
// DataError for a log with a line without an end, or of more attempts than memory is taken for.
ForeignLog ReadForeignLog(const TraceSource& source);

// How attempts ended, read once, from the first to the last. Made-up ones have no end; the caller
// stops.
class Attempts {
 public:
  virtual ~Attempts() = default;
  // Goes to the next; false: there is none.
  virtual bool Next(scaling::StepOutcome& outcome) = 0;
  // Returns the numbers of attempt and step of the first, once Next has given it.
  virtual std::pair<std::int64_t, std::int64_t> FirstNumbers() const { return {1, 1}; }
  // What was recorded of the attempt that Next gave last; made-up ones have nothing.
  virtual RecordedAttempt recorded() const { return {}; }
  // Describes the attempts in a few words.
  virtual std::string Describe() const = 0;
};

// Opens the trace that `options` name; `wants_amax`: the policy needs the largest gradient. Remarks
// on how it is read go to `notes`. DataErrors, also those of Next, name file and line.
std::unique_ptr<Attempts> OpenTrace(const ReplayOptions& options, bool wants_amax,
                                    std::ostream& notes);

// Attempts without an end that overflow as the pattern says.
std::unique_ptr<Attempts> MakeUp(const ReplayPattern& pattern, bool wants_amax);

}  // namespace ada::study
