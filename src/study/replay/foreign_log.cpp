// Traces from the logs of DeepSpeed, Megatron and apex: what a line tells about attempts.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "error.h"
#include "io/text.h"
#include "study/replay/attempts.h"

namespace ada::study {
namespace {

// The number that stands after `key` in `line`, both in lower case, blanks and colons between.
// Numbers may end in commas, bars or text: what follows the digits is not looked at.
std::optional<double> NumberAfter(std::string_view line, std::string_view key) {
  std::size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  at = line.find_first_not_of(" \t:=", at + key.size());
  if (at == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), value);
  (void)end;
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// As many are believed, and kept.
constexpr std::size_t kMostAttempts = 100'000'000;

// The same of a number of attempts, from 0 to the most that are believed.
std::optional<double> CountAfter(std::string_view line, std::string_view key) {
  const std::optional<double> count = NumberAfter(line, key);
  return count && *count >= 0 && *count <= static_cast<double>(kMostAttempts) ? count
                                                                              : std::nullopt;
}

// Lines are read one after another; lines that are not from these programs are skipped, so a log
// may contain anything else.
class LogReader {
 public:
  void Take(std::string_view text) {
    const std::string line = LowerCase(text);
    if (line.find("overflow") != std::string::npos &&
        line.find("skipping step") != std::string::npos)
      return Overflow(line);
    if (line.find("iteration") != std::string::npos && line.find('|') != std::string::npos &&
        line.find("loss scale") != std::string::npos)
      return Interval(line);
    if (line.find("step=") != std::string::npos && line.find("skipped=") != std::string::npos)
      Position(line);
  }
  std::size_t attempts() const { return log_.attempts.size(); }
  ForeignLog Finish() {
    if (last_line_ && first_pending_) AddAttempts(*last_line_, 1);
    if (between_)
      log_.notes.emplace_back(
          "a line stands for several steps: those that were skipped are taken as the first of "
          "them");
    if (!knows_ && !log_.attempts.empty())
      log_.notes.emplace_back(
          "the log has lines of skipped steps alone: how many steps were between them it does not "
          "tell, and none are replayed");
    return std::move(log_);
  }

 private:
  // apex: "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0";
  // DeepSpeed: "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768".
  void Overflow(const std::string& line) {
    if (const std::optional<double> rank = NumberAfter(line, "rank")) {
      // Every process prints the line; the first rank that was seen stands for all.
      if (rank_ && *rank != *rank_) return;  // the same step, as another process has it
      rank_ = rank;
    }
    RecordedAttempt attempt;
    attempt.overflow = true;
    ++skipped_;
    attempt.scale = NumberAfter(line, "attempted loss scale");
    attempt.scale_after = NumberAfter(line, "reducing loss scale to");
    if (!attempt.scale_after) attempt.scale_after = NumberAfter(line, "reducing to");
    log_.attempts.push_back(attempt);
  }
  // Megatron: " iteration 20/ 100 | ... | loss scale: 65536.0 | ... | number of skipped iterations:
  // 1 | ...": the scale is that of after the iteration. How many iterations the first line stands
  // for is known with the second: as many as lie between the two, but no more than there were.
  void Interval(const std::string& text) {
    const std::optional<double> at = CountAfter(text, "iteration");
    if (!at) return;
    IntervalLine line;
    line.iteration = static_cast<std::int64_t>(*at);
    line.skipped =
        static_cast<std::int64_t>(CountAfter(text, "number of skipped iterations").value_or(0));
    line.scale = NumberAfter(text, "loss scale");
    knows_ = true;
    if (last_line_) {
      const std::int64_t steps = line.iteration - last_line_->iteration;
      if (first_pending_) AddAttempts(*last_line_, std::min(steps, last_line_->iteration));
      first_pending_ = false;
      AddAttempts(line, steps);
    }
    last_line_ = line;
  }
  struct IntervalLine {
    std::int64_t iteration = 0, skipped = 0;
    std::optional<double> scale;
  };
  void AddAttempts(const IntervalLine& line, std::int64_t steps) {
    // A log that was cut and joined may go back in its iterations; a line stands for one attempt at
    // least.
    steps = std::max<std::int64_t>({steps, line.skipped, 1});
    between_ = between_ || steps > 1;
    for (std::int64_t i = 0; i < steps; ++i) {
      RecordedAttempt attempt;
      attempt.overflow = i < line.skipped;
      if (i + 1 == steps) attempt.scale_after = line.scale;
      log_.attempts.push_back(attempt);
    }
  }
  // DeepSpeed: "step=10, skipped=4, lr=[...], mom=[...]": attempts so far.
  void Position(const std::string& line) {
    const std::optional<double> step = CountAfter(line, "step=");
    if (!step) return;
    knows_ = true;
    // Attempts that no line was printed for went well. Among them the skipped ones may lie
    // anywhere, at other scales than the replay has in their place.
    std::vector<RecordedAttempt>& attempts = log_.attempts;
    if (skipped_ > 0 && static_cast<double>(attempts.size()) < *step) {
      between_ = true;
      for (auto at = attempts.end() - skipped_; at != attempts.end(); ++at)
        at->scale = at->scale_after = std::nullopt;
    }
    skipped_ = 0;
    while (static_cast<double>(log_.attempts.size()) < *step) log_.attempts.emplace_back();
  }

  ForeignLog log_;
  std::optional<double> rank_;
  std::optional<IntervalLine> last_line_;
  bool first_pending_ = true;   // the first line's attempts are still to be added
  bool knows_ = false;          // how many steps there were between those that were skipped
  bool between_ = false;        // a line stands for several
  std::ptrdiff_t skipped_ = 0;  // that were added since the last position
};

}  // namespace

ForeignLog ReadForeignLog(const TraceSource& source) {
  LogReader reader;
  const bool whole = source.ForLines([&](std::string_view line) {
    reader.Take(line);
    if (reader.attempts() > kMostAttempts)
      throw DataError(source.name() + ": a log of more than " + std::to_string(kMostAttempts) +
                      " attempts");
  });
  ForeignLog log = reader.Finish();
  if (whole || log.attempts.empty()) return log;
  throw DataError(source.name() + ": a log with a line of more than 1 MiB");
}

}  // namespace ada::study
