// Gathers attempts at one scale into stretches, prints them as a table, and compares scales with
// recorded ones.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/shown_text.h"
#include "io/text.h"
#include "scaling/policies/policy.h"
#include "study/replay/attempts.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kAtEachEnd = 20;  // stretches that are shown
constexpr std::size_t kMostThen = 36;
// Skips in a row at one scale that are no hysteresis any more.
constexpr std::int64_t kStandsStill = 10;

// NaN is not less than anything, and no scale differs more from the others.
bool Differs(double a, double b) { return !(a == b) && !(std::isnan(a) && std::isnan(b)); }

// Why a stretch ended: the policy's reason where it gives one.
std::string EndOf(const ReplayRow& row) {
  if (!row.error.empty()) return "ends the run";
  const std::string move = row.scale_after < row.scale   ? "falls"
                           : row.scale_after > row.scale ? "grows"
                                                         : "changes";
  return row.reason.empty() ? move : move + ": " + row.reason;
}

}  // namespace

// The first stretches stay; of the later ones the newest do, and those between are only counted.
void Stretches::Begin(const ReplayRow& row) {
  if (head_.size() < kAtEachEnd) {
    head_.push_back({row.attempt, row.attempt, row.scale, 0, ""});
    return;
  }
  tail_.push_back({row.attempt, row.attempt, row.scale, 0, ""});
  if (tail_.size() <= kAtEachEnd) return;
  tail_.pop_front();
  ++left_out_;
}

// A stretch is a row of attempts at one scale; a change of the scale after the row ends it.
void Stretches::Add(const ReplayRow& row) {
  if (attempts_ == 0) first_ = lowest_ = highest_ = row.scale;
  if (attempts_ == 0 || Differs(row.scale, last_.scale)) Begin(row);
  Stretch& now = tail_.empty() ? head_.back() : tail_.back();
  now.last = row.attempt;
  now.overflows += row.overflow;
  if (Differs(row.scale, row.scale_after) || !row.error.empty()) now.then = EndOf(row);
  if (attempts_ == 0 || row.step != last_.step) ++steps_;
  ++attempts_;
  overflows_ += row.overflow;
  skipped_ += row.skipped;
  still_ = row.skipped && !Differs(row.scale, row.scale_after) ? still_ + 1 : 0;
  falls_ += row.scale_after < row.scale;
  grows_ += row.scale_after > row.scale;
  lowest_ = std::min(lowest_, row.scale_after);
  highest_ = std::max(highest_, row.scale_after);
  last_ = row;
}

// A stretch of one attempt has its number only.
std::vector<std::string> Stretches::Fields(const Stretch& stretch) {
  std::string attempts = std::to_string(stretch.first);
  if (stretch.last > stretch.first) attempts += "-" + std::to_string(stretch.last);
  return {attempts, ScaleText(stretch.scale, 10, 6), std::to_string(stretch.overflows),
          CutText(stretch.then, kMostThen)};
}

void Stretches::Print(std::ostream& out) const {
  if (attempts_ == 0) return;
  TextTable table({"attempts", "S", "overflows", "then S"});
  table.LastToTheLeft();
  for (const Stretch& stretch : head_) table.Row(Fields(stretch));
  if (left_out_ > 0) table.Row({"... " + std::to_string(left_out_) + " more", "", "", ""});
  for (const Stretch& stretch : tail_) table.Row(Fields(stretch));
  table.Print(out, kTerminalWidth);
}

std::vector<std::string> Stretches::Summary() const {
  if (attempts_ == 0) return {"no attempt"};
  const double share = static_cast<double>(overflows_) / static_cast<double>(attempts_);
  std::string count = Counted(attempts_, "attempt");
  if (steps_ != attempts_) count += " at " + Counted(steps_, "step");
  std::vector<std::string> lines = {
      count + ": " + std::to_string(overflows_) + " overflowed (" +
          NineDigits(std::round(1e4 * share) / 100) + " %), " + std::to_string(skipped_) +
          " skipped",
      "S: " + ScaleText(first_, 10, 6) + " at first, fell " + Counted(falls_, "time") + ", grew " +
          Counted(grows_, "time") + ", " + ScaleText(last_.scale_after, 10, 6) + " at the end (" +
          ScaleText(lowest_, 10, 6) + " to " + ScaleText(highest_, 10, 6) + ")"};
  // A scale that is 0 or infinite stays so, and one that falls no further skips every attempt: in
  // both cases a training would stand still without an error.
  if (last_.error.empty()) {
    const std::string why = scaling::WhyForGood(last_.scale_after);
    if (!why.empty())
      lines.push_back(std::string("S is ") + (last_.scale_after == 0 ? "0" : "infinite") +
                      " for good: " + why + ", and no later step can train");
    else if (still_ > kStandsStill)
      lines.push_back("every attempt from " + std::to_string(last_.attempt - still_ + 1) +
                      " on is skipped at S = " + ScaleText(last_.scale, 10, 6) +
                      ", which falls no further: a training stands still there");
  }
  if (!last_.error.empty()) lines.push_back("the policy ends the run: " + Visible(last_.error));
  return lines;
}

void ScaleComparison::Compare(const ReplayRow& row, const char* when, double ours,
                              const std::optional<double>& theirs) {
  if (!theirs || !difference_.empty()) return;
  ++compared_;
  // Logs print scales with six digits or more.
  // Infinite scales give NaN here, which is not below anything; Differs decides then.
  if (std::fabs(ours - *theirs) <= 1e-5 * std::fabs(ours)) return;
  if (!Differs(ours, *theirs)) return;
  difference_ = "the first scale that differs from the record is that " + std::string(when) +
                " attempt " + std::to_string(row.attempt) + ": " + ScaleText(*theirs, 12, 6) +
                " there, " + ScaleText(ours, 12, 6) + " here";
}

void ScaleComparison::Add(const ReplayRow& row, const RecordedAttempt& recorded) {
  Compare(row, "of", row.scale, recorded.scale);
  Compare(row, "after", row.scale_after, recorded.scale_after);
}

std::string ScaleComparison::Text() const {
  if (!difference_.empty()) return difference_;
  return compared_ == 0 ? "" : "all " + Counted(compared_, "scale") + " of the record are the same";
}

}  // namespace ada::study
