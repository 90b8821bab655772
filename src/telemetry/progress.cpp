// Decides when progress is shown and where: a terminal is redrawn, a log gets a line now and then.
#include "telemetry/progress.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "io/shown_text.h"

namespace ada::telemetry {
namespace {

// A terminal is redrawn; a log gets a line only now and then.
constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 30;

}  // namespace

double SteadySeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

ProgressLine::ProgressLine(Log& log, bool wanted, Clock clock)
    : log_(log),
      clock_(std::move(clock)),
      wanted_(wanted),
      drawn_(wanted && log.terminal() && log.Shows(LogLevel::kInfo)),
      color_(drawn_ && log.color()),
      last_(clock_()) {}

bool ProgressLine::Due() const {
  return clock_() - last_ >= (drawn_ ? kRedrawSeconds : kPlainSeconds);
}

void ProgressLine::Draw(const std::string& line) {
  last_ = clock_();
  if (drawn_) log_.SetStatus(line);
}

void ProgressLine::Say(const std::string& line) {
  last_ = clock_();
  wanted_ ? log_.Info(line) : log_.Note(line);
}

void ProgressLine::Clear() {
  if (drawn_) log_.SetStatus("");
}

Progress::Progress(Log& log, bool wanted, Clock clock)
    : line_(log, wanted, std::move(clock)), last_step_(line_.Now()) {}

// The first update after a pause sets the clock alone: the time before it was no training.
void Progress::Update(const ProgressState& state, std::int64_t images, double seconds_limit) {
  const double now = line_.Now();
  if (last_step_) {
    images_.Add(static_cast<double>(images), now - *last_step_);
    steps_.Add(1, now - *last_step_);
  }
  last_step_ = now;
  state_ = state;
  loss_.Add(state.loss);
  accuracy_.Add(state.accuracy);
  state_.loss = loss_.value();
  state_.accuracy = accuracy_.value();
  state_.images_per_second = images_.per_second();
  // The smaller of what the steps take and what the limit leaves.
  state_.seconds_left = seconds_limit;
  if (state.steps > 0 && steps_.per_second() > 0) {
    const double left = static_cast<double>(state.steps - state.step) / steps_.per_second();
    state_.seconds_left = seconds_limit < 0 ? left : std::min(left, seconds_limit);
  }
  logged_ = false;
  if (line_.Due()) Show(false);
}

void Progress::EndEpoch() {
  if (!logged_) Show(true);
}

// A plain line is written where nothing is redrawn, or where an epoch ends.
void Progress::Show(bool epoch_end) {
  if (line_.drawn()) line_.Draw(FormatProgress(state_, line_.width(), line_.color()));
  if (line_.drawn() && !epoch_end) return;
  line_.Say(FormatProgress(state_));  // an epoch's end is worth it on a terminal too
  logged_ = true;
}

void Progress::Pause(const std::string& activity) {
  last_step_.reset();
  if (!activity.empty()) line_.Draw(Truncate(activity, line_.width()));
}

EvaluationProgress::EvaluationProgress(Log& log, bool wanted, std::string activity,
                                       std::int64_t images, Clock clock, std::int64_t tokens)
    : line_(log, wanted, std::move(clock)),
      activity_(std::move(activity)),
      images_(images),
      tokens_(tokens),
      last_(line_.Now()) {
  line_.Draw(Truncate(activity_, line_.width()));
}

void EvaluationProgress::Update(std::int64_t done) {
  const double now = line_.Now();
  rate_.Add(static_cast<double>(done - done_), now - last_);
  done_ = done;
  last_ = now;
  if (!line_.Due()) return;
  if (line_.drawn())
    line_.Draw(
        FormatEvaluation(activity_, done, images_, rate_.per_second(), line_.width(), tokens_));
  else
    line_.Say(FormatEvaluation(activity_, done, images_, rate_.per_second(),
                               std::numeric_limits<int>::max(), tokens_));
}

}  // namespace ada::telemetry
