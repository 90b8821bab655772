#include "telemetry/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/text.h"

namespace ada::telemetry {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kPlainSeconds = 30;

template <class... Values>
std::string Print(const char* format, Values... values) {
  char text[96];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string OutOf(const char* name, std::int64_t value, std::int64_t all) {
  std::string text = name + (" " + std::to_string(value));
  if (all > 0) text += "/" + std::to_string(all);
  return text;
}

}  // namespace

void RateMeter::Add(double count, double seconds) {
  if (!(seconds > 0)) return;
  const double keep = std::exp2(-seconds / half_life_);
  count_ = keep * count_ + count;
  seconds_ = keep * seconds_ + seconds;
}

std::string FormatCount(double value) {
  if (value < 9.995) return Print("%.2f", value);
  if (value < 9999.5) return Print("%.0f", value);
  if (value < 99950) return Print("%.1fk", value / 1e3);
  if (value < 999500) return Print("%.0fk", value / 1e3);
  return Print("%.1fM", value / 1e6);
}

std::string FormatDuration(double seconds) {
  const auto whole = std::llround(std::min(std::max(seconds, 0.0), 1e12));
  const long long s = whole % 60, m = whole / 60 % 60, h = whole / 3600, days = h / 24;
  if (days > 0) return Print("%lldd %02lld:%02lld", days, h % 24, m);
  return h > 0 ? Print("%lld:%02lld:%02lld", h, m, s) : Print("%lld:%02lld", m, s);
}

double Printable(double value) { return std::isnan(value) ? NAN : value; }

std::string FormatProgress(const ProgressState& state) {
  std::string line = OutOf("epoch", state.epoch, state.epochs);
  line += "  " + OutOf("step", state.step, state.steps);
  line += Print("  loss %.4g  acc %.1f%%  scale ", Printable(state.loss),
                Printable(100 * state.accuracy));
  line +=
      Print("%.9g  skipped %lld", Printable(state.scale), static_cast<long long>(state.skipped));
  if (state.images_per_second > 0) line += "  " + FormatCount(state.images_per_second) + " img/s";
  if (state.seconds_left >= 0) line += "  left " + FormatDuration(state.seconds_left);
  return line;
}

std::string Truncate(const std::string& line, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  if (line.size() <= columns) return line;
  const std::size_t dots = std::min<std::size_t>(columns, 2);
  return line.substr(0, columns - dots) + std::string(dots, '.');
}

double SteadySeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Progress::Progress(Log& log, bool line, Clock clock)
    : log_(log),
      clock_(std::move(clock)),
      line_(line && log.terminal() && log.Shows(LogLevel::kInfo)),
      last_step_(clock_()),
      last_draw_(*last_step_) {}

Progress::~Progress() { Clear(); }

void Progress::Update(const ProgressState& state, std::int64_t images, double seconds_limit) {
  const double now = clock_();
  if (last_step_) {
    images_.Add(static_cast<double>(images), now - *last_step_);
    steps_.Add(1, now - *last_step_);
  }
  last_step_ = now;
  state_ = state;
  state_.images_per_second = images_.per_second();
  state_.seconds_left = seconds_limit;
  if (state.steps > 0 && steps_.per_second() > 0) {
    const double left = static_cast<double>(state.steps - state.step) / steps_.per_second();
    state_.seconds_left = seconds_limit < 0 ? left : std::min(left, seconds_limit);
  }
  logged_ = false;
  if (now - last_draw_ >= (line_ ? kRedrawSeconds : kPlainSeconds)) Draw(false);
}

void Progress::EndEpoch() {
  if (!logged_) Draw(true);
}

void Progress::Draw(bool epoch_end) {
  last_draw_ = clock_();
  const std::string line = FormatProgress(state_);
  if (line_) log_.SetStatus(Truncate(line, log_.width() - 1));
  if (line_ && !epoch_end) return;
  log_.Info(line);  // the end of an epoch is worth a line that stays, on a terminal too
  logged_ = true;
}

void Progress::Pause(const std::string& activity) {
  last_step_.reset();
  if (line_ && !activity.empty()) log_.SetStatus(Truncate(activity, log_.width() - 1));
}

void Progress::Clear() {
  if (line_) log_.SetStatus("");
}

}  // namespace ada::telemetry
