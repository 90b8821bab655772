// Formats the parts of a progress line, and leaves out the least important ones until it fits.
#include "telemetry/progress_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/shown_text.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

// The weight of a value against the next one's: a mean over about the last 50 batches.
constexpr double kSmoothing = 0.98;

std::string OutOf(const char* name, std::int64_t value, std::int64_t all) {
  std::string text = name + (" " + std::to_string(value));
  if (all > 0) text += "/" + std::to_string(all);
  return text;
}

// A part of the line; those with the lowest rank go first where there is no room. Rank 0 is empty.
struct Field {
  std::string text;
  int rank = 0;
  Color color = Color::kPlain;
};

// The fields that fit, two blanks between; what is still too long is cut.
// Widths are counted in bytes: all fields are ASCII.
std::string Joined(std::vector<Field> fields, int width, bool color) {
  std::erase_if(fields, [](const Field& field) { return field.text.empty(); });
  const auto columns = [&] {
    std::size_t sum = 2 * (fields.size() - 1);
    for (const Field& field : fields) sum += field.text.size();
    return sum;
  };
  const auto lower = [](const Field& a, const Field& b) { return a.rank < b.rank; };
  while (fields.size() > 1 && columns() > static_cast<std::size_t>(std::max(width, 0)))
    fields.erase(std::min_element(fields.begin(), fields.end(), lower));
  if (fields.size() == 1) return Truncate(fields.front().text, width);
  std::string line;
  for (const Field& field : fields)
    line += (line.empty() ? "" : "  ") + Colored(color, field.color, field.text);
  return line;
}

std::string RateText(double per_second, std::int64_t tokens) {
  if (per_second <= 0) return "";
  if (tokens == 0) return FormatCount(per_second) + " img/s";
  return FormatCount(per_second * static_cast<double>(tokens)) + " tokens/s";
}

std::string LeftText(double seconds) {
  return seconds >= 0 ? "left " + FormatDuration(seconds) : "";
}

}  // namespace

// Numerator and denominator decay alike, so that the first interval already gives the right rate.
void RateMeter::Add(double count, double seconds) {
  if (!(seconds > 0)) return;
  const double keep = std::exp2(-seconds / half_life_);
  count_ = keep * count_ + count;
  seconds_ = keep * seconds_ + seconds;
}

// Divided by the sum of weights, the mean is right from the first value on.
void Smoothed::Add(double value) {
  last_ = value;
  last_finite_ = std::isfinite(value);
  if (!last_finite_) return;
  sum_ = kSmoothing * sum_ + value;
  weight_ = kSmoothing * weight_ + 1;
}

std::int64_t WholeEpochs(std::int64_t steps, std::int64_t epoch) {
  return epoch > 0 && steps % epoch == 0 ? steps / epoch : 0;
}

// Bounds lie where rounding would add a digit.
std::string FormatCount(double value) {
  if (value < 9.995) return Formatted("%.2f", value);
  if (value < 9999.5) return Formatted("%.0f", value);
  if (value < 99950) return Formatted("%.1fk", value / 1e3);
  if (value < 999500) return Formatted("%.0fk", value / 1e3);
  return Formatted("%.1fM", value / 1e6);
}

std::string FormatDuration(double seconds) {
  const auto whole = std::llround(std::min(std::max(seconds, 0.0), 1e12));
  const long long s = whole % 60, m = whole / 60 % 60, h = whole / 3600, days = h / 24;
  if (days > 0) return Formatted("%lldd %02lld:%02lld", days, h % 24, m);
  return h > 0 ? Formatted("%lld:%02lld:%02lld", h, m, s) : Formatted("%lld:%02lld", m, s);
}

double Printable(double value) { return std::isnan(value) ? NAN : value; }

std::string FormatProgress(const ProgressState& state, int width, bool color) {
  const bool lost = !std::isfinite(state.loss);
  return Joined(
      {{OutOf("epoch", state.epoch, state.epochs), 3},
       {OutOf("step", state.step, state.steps), 6},
       {Formatted("loss %.4g", Printable(state.loss)), 5, lost ? Color::kRed : Color::kPlain},
       {Formatted("acc %.1f%%", Printable(100 * state.accuracy)), 2},
       {Formatted("scale %.9g", Printable(state.scale)), 1},
       {"skipped " + std::to_string(state.skipped), state.skipped > 0 ? 4 : 0,
        state.skipped > 0 ? Color::kYellow : Color::kPlain},
       {RateText(state.images_per_second, state.tokens), 7},
       {LeftText(state.seconds_left), 8, Color::kBold}},
      width, color);
}

std::string FormatEvaluation(const std::string& activity, std::int64_t done, std::int64_t images,
                             double images_per_second, int width, std::int64_t tokens) {
  const double left =
      images_per_second > 0 ? static_cast<double>(images - done) / images_per_second : -1;
  return Joined({{activity, 4},
                 {std::to_string(done) + "/" + std::to_string(images) +
                      (tokens > 0 ? " sequences" : " images"),
                  1},
                 {RateText(images_per_second, tokens), 2},
                 {LeftText(left), 3}},
                width, false);
}

std::string Truncate(const std::string& line, int width) {
  const auto columns = static_cast<std::size_t>(std::max(width, 0));
  if (line.size() <= columns) return line;
  const std::size_t dots = std::min<std::size_t>(columns, 2);
  return line.substr(0, columns - dots) + std::string(dots, '.');
}

}  // namespace ada::telemetry
