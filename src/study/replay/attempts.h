// The parts of `replay`: where attempts come from, what a policy did in each, and how that is shown
// to people.
// replay.cpp opens attempts (trace.cpp, foreign_log.cpp, source.cpp), drives the policy with them,
// and gives each row to Stretches and ScaleComparison.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
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
#include "telemetry/columns.h"

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

// How attempts ended, one after the other.
// A source that is read once, from the first attempt to the last. Made-up ones have no end; the
// caller stops.
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

// What a policy did in one attempt.
// A row of the CSV. `scale` is that of the attempt, `scale_after` that of the next one.
struct ReplayRow {
  std::int64_t attempt = 1, step = 1;
  bool overflow = false, skipped = false;
  double scale = 1, scale_after = 1;
  std::string error;   // of the attempt by which the policy ends the run
  std::string reason;  // why the scale changed; no column

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<ReplayRow>>({
        {"attempt", &ReplayRow::attempt},
        {"step", &ReplayRow::step},
        {"overflow", &ReplayRow::overflow},
        {"scale", &ReplayRow::scale, kExact | kPlain},
        {"skipped", &ReplayRow::skipped},
        {"scale_after", &ReplayRow::scale_after, kExact | kPlain},
        {"error", &ReplayRow::error},
    });
  }
};

// Compares the scales of a record with those of a policy, up to the first that differs.
// Add in the order of attempts. After the first difference the two go different ways, so nothing
// later is compared.
class ScaleComparison {
 public:
  void Add(const ReplayRow& row, const RecordedAttempt& recorded);
  // One line; empty where the record has no scales.
  std::string Text() const;

 private:
  void Compare(const ReplayRow& row, const char* when, double ours,
               const std::optional<double>& theirs);

  std::int64_t compared_ = 0;
  std::string difference_;
};

// Tells what became of S: stretches of attempts that had the same one, and the sums of all.
// Add in the order of attempts. Memory does not grow with them: only the first and last stretches
// are kept.
class Stretches {
 public:
  void Add(const ReplayRow& row);
  // Prints a table of the stretches, the first and the last of many. Lines of at most 80 columns.
  void Print(std::ostream& out) const;
  // Returns some lines, each without its end.
  std::vector<std::string> Summary() const;

 private:
  struct Stretch {
    std::int64_t first = 0, last = 0;  // attempts
    double scale = 1;
    std::int64_t overflows = 0;
    std::string then;  // why it ended
  };
  static std::vector<std::string> Fields(const Stretch& stretch);
  void Begin(const ReplayRow& row);

  std::vector<Stretch> head_;
  std::deque<Stretch> tail_;
  std::int64_t left_out_ = 0;  // stretches between the two
  ReplayRow last_;
  std::int64_t attempts_ = 0, steps_ = 0, overflows_ = 0, skipped_ = 0, falls_ = 0, grows_ = 0;
  std::int64_t still_ =
      0;  // attempts in a row, up to the last, that were skipped and left S as it is
  double first_ = 1, lowest_ = 1, highest_ = 1;
};

}  // namespace ada::study
