// The lines of watch: a header, the table of layers, and legends. Colors and UTF-8 are options, so
// the same lines go to a pipe.
#include "io/text.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>

#include "io/shown_text.h"
#include "study/text_table.h"
#include "study/watch/watch_view.h"
#include "telemetry/block_figures.h"
#include "telemetry/coverage.h"
#include "telemetry/progress_text.h"
#include "telemetry/totals.h"

namespace ada::study {
namespace {

constexpr std::size_t kMostName = 32, kScaleWidth = 9, kPctWidth = 8, kLimitWidth = 9;
constexpr std::size_t kLeastSparkline = 8;

// Upper ends of the sparkline's levels, in percent; above the last: the highest.
constexpr std::array<double, 7> kLevels = {0, 0.01, 0.1, 1, 3, 10, 30};
constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<const char*, 8> kAscii = {"_", ".", ":", "-", "=", "+", "*", "#"};

std::size_t LevelOf(double pct) {
  return static_cast<std::size_t>(std::lower_bound(kLevels.begin(), kLevels.end(), pct) -
                                  kLevels.begin());
}

// Lower ends of the levels of SQNR, in dB; the last is sqrt(3) between norms, below which training
// is said to stall (record/step_log.h).
constexpr std::array<double, 7> kSqnrLevels = {40, 30, 25, 20, 15, 10, 4.8};

std::string SqnrMarks(const WatchedLayer& layer, bool utf8) {
  const auto& marks = utf8 ? kBlocks : kAscii;
  std::string text;
  for (const double db : layer.sqnr) {
    const auto level = std::find_if(kSqnrLevels.begin(), kSqnrLevels.end(),
                                    [db](double low) { return db >= low; });
    text += std::isnan(db) ? " " : marks[static_cast<std::size_t>(level - kSqnrLevels.begin())];
  }
  return text;
}

std::string SqnrLegend(bool utf8) {
  const auto& marks = utf8 ? kBlocks : kAscii;
  std::string text = "SQNR dB (y: x w, dx: dy w, dw: x dy)";
  for (std::size_t i = 0; i < kSqnrLevels.size(); ++i)
    text += std::string(" ") + marks[i] + " " + ShortestText(kSqnrLevels[i]);
  return text + " " + marks.back() + " less";
}

// The operand that rounding hurts most, and the one whose scales lie furthest apart.
std::string BlocksText(const WatchedBlocks& blocks) {
  return "operands: " + blocks.worst.layer + "." + blocks.worst.tensor + " " +
         telemetry::DecibelText(blocks.worst.sqnr_db) +
         " dB is the worst; widest scales: " + blocks.widest.layer + "." + blocks.widest.tensor +
         ", log2 " + telemetry::ScalesText(blocks.widest);
}

// The product whose sums are furthest from those in fp32.
std::string SumsText(const WatchedSums& sums) {
  const AccumulatorRow& worst = sums.worst;
  return "sums: " + worst.layer + "." + worst.tensor + " by " + worst.accumulator +
         " is the worst: " +
         telemetry::AccumulatorFigures(worst.swallowed_pct, worst.bias, worst.sqnr_db);
}

std::string OutOf(const char* what, std::int64_t value, std::int64_t all) {
  return what + (" " + std::to_string(value)) + (all > 0 ? "/" + std::to_string(all) : "");
}

std::string StatusText(const std::string& status) {
  return status == "died" ? "ended without a summary (killed?)" : status;
}

// Colors are added last, so widths are counted without their codes.
struct Line {
  std::string text;
  Color color = Color::kPlain;
  bool wraps = false;  // it is shown whole, in as many lines as it takes
};

// "  1234 img/s  left 1:02:03", as far as it is known; of a language model "  12.3k tokens/s".
std::string Pace(const WatchState& s) {
  if (s.timing.step == 0 || s.status != "running") return "";
  const bool tokens = !std::isnan(s.timing.tokens);
  std::string pace = "  " +
                     telemetry::FormatCount(tokens ? s.timing.tokens : s.timing.images_per_second) +
                     (tokens ? " tokens/s" : " img/s");
  if (s.seconds_left() >= 0) pace += "  left " + telemetry::FormatDuration(s.seconds_left());
  return pace;
}

// Lines that wrap as several.
std::vector<Line> InPieces(const std::vector<Line>& lines, std::size_t width) {
  constexpr std::size_t kIndent = 2;
  std::vector<Line> wrapped;
  for (const Line& line : lines) {
    if (!line.wraps) {
      wrapped.push_back(line);
      continue;
    }
    std::istringstream pieces(Wrapped(line.text, kIndent, width));
    for (std::string piece; std::getline(pieces, piece);) wrapped.push_back({piece, line.color});
  }
  return wrapped;
}

// "loss 1.752  acc 47.2 %"; of a language model "loss 1.752 nats  perplexity 5.77".
std::string Fit(const WatchState& s) {
  const std::string loss = Formatted("loss %.4g", s.step.loss);
  return s.language ? loss + Formatted(" nats  perplexity %.4g", telemetry::Perplexity(s.step.loss))
                    : loss + Formatted("  acc %.1f %%", 100 * s.step.accuracy);
}

// "top-1 91.20 %", or what decides of the classes: "mIoU 45.10 %"; of a language model
// "2.528 bits per byte  perplexity 5.77  accuracy 47.20 %".
std::string Judgement(const WatchState& s) {
  if (s.language) {
    const double loss = s.evaluation.loss;
    return (s.bytes ? Formatted("%.4g bits per byte  ", telemetry::Bits(loss)) : "") +
           Formatted("perplexity %.4g  accuracy %.2f %%", telemetry::Perplexity(loss),
                     100 * s.evaluation.top1);
  }
  const bool known = s.classes.step == s.evaluation.step && s.classes.split == s.evaluation.split;
  const std::vector<telemetry::Metric> metrics =
      known ? telemetry::MetricsOf(s.classes) : std::vector<telemetry::Metric>();
  if (metrics.empty()) return Formatted("top-1 %.2f %%", 100 * s.evaluation.top1);
  return metrics.front().name + Formatted(" %.2f %%", 100 * metrics.front().value);
}

// Lines appear only where there is something to say.
std::vector<Line> Header(const WatchState& s) {
  std::vector<Line> lines{
      {(s.name.empty() ? "" : s.name + "  ") + StatusText(s.status) + Pace(s) + "  " + s.folder}};
  if (s.step.step == 0) {
    lines.push_back({"no step has been written yet"});
    return lines;
  }
  lines.push_back({OutOf("step", s.step.step, s.steps_in_all()) + "  " +
                   OutOf("epoch", s.step.epoch, s.epochs_in_all()) + "  " + Fit(s) +
                   Formatted("  lr %.4g  S ", s.step.lr) + ShortestText(s.step.scale) +
                   "  skipped " + std::to_string(s.skipped)});
  if (s.finiteness.since() > 0)
    lines.push_back(
        {s.finiteness.ShortText(telemetry::FindLostFromTheStart(s.totals)), Color::kRed, true});
  const auto dead = telemetry::LayersWithoutGradient(s.totals);
  if (!dead.empty()) lines.push_back({telemetry::NoGradientText(dead, dead.size()), Color::kRed});
  if (s.blocks.step > 0) lines.push_back({BlocksText(s.blocks), Color::kPlain, true});
  if (s.sums.step > 0) lines.push_back({SumsText(s.sums), Color::kPlain, true});
  if (s.evaluation.step > 0)
    lines.push_back({s.evaluation.split + Formatted(": loss %.4g", s.evaluation.loss) +
                     (s.language ? " nats  " : "  ") + Judgement(s) + " (step " +
                     std::to_string(s.evaluation.step) + ")"});
  if (s.event.step > 0)
    lines.push_back({"last event: step " + std::to_string(s.event.step) + ", " + s.event.event +
                         ": " + Visible(s.event.message),
                     Color::kPlain, true});
  return lines;
}

// What all tensors lost so far, and of what that is said: the table is of dx alone.
std::vector<Line> Lost(const WatchState& s) {
  if (s.logged_step == 0) return {};
  const telemetry::Coverage coverage = telemetry::CoverageOf(s.totals, s.step.step, s.uncounted);
  return {{Visible(telemetry::LostText(s.totals, coverage)), Color::kPlain, true}};
}

// Whether the last logged step left nothing of the gradient of a line (LineOfGradient) but zeros.
bool IsDead(const WatchState& state, const WatchedLayer& layer) {
  const telemetry::TensorTotals* dx = state.totals.FindTensor(layer.name, "dx");
  if (dx == nullptr) {
    const auto [of, tensor] = PartsOfDecision(layer.name);
    dx = state.totals.FindTensor(std::string(of), std::string(tensor));
  }
  return dx != nullptr && dx->left_empty;
}

// Indices of the layers that are shown, at most `room`: the worst, in the order of the network.
std::vector<std::size_t> RowsThatFit(const WatchState& state, std::size_t room) {
  const std::vector<WatchedLayer>& layers = state.layers;
  std::vector<std::size_t> shown(layers.size());
  std::iota(shown.begin(), shown.end(), 0);
  if (shown.size() <= room) return shown;
  std::vector<double> means;
  for (const WatchedLayer& layer : layers)  // nothing is worse than a dead or a broken one
    means.push_back(layer.broken ? 102 : IsDead(state, layer) ? 101 : layer.mean_pct());
  std::stable_sort(shown.begin(), shown.end(),
                   [&](std::size_t a, std::size_t b) { return means[a] > means[b]; });
  shown.resize(room);
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::string Legend(bool utf8) {
  const auto& marks = utf8 ? kBlocks : kAscii;
  std::string text = "underflow % of dx, up to";
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    text += std::string(i == 0 ? " " : "  ") + marks[i] + " " + ShortestText(kLevels[i]);
  }
  return text + "  " + marks.back() + " 100  ! inf";
}

// Names, scales, percentages, limits and sparklines in columns.
// The sparkline gets what the other columns leave of the width, and is left out where that is
// little.
class Table {
 public:
  Table(const WatchState& state, const std::vector<std::size_t>& shown, const DrawOptions& options)
      : state_(state), utf8_(options.utf8) {
    for (const std::size_t i : shown) {
      name_ = std::max(name_, std::min(TextWidth(state.layers[i].name), kMostName));
    }
    has_blocks_ = state.blocks.step > 0;
    const std::size_t others =
        (has_blocks_ ? kOperands + 2 : 0) + kScaleWidth + kPctWidth + kLimitWidth + 4 * 2;
    if (options.width > others + name_ + kLeastSparkline) {
      sparkline_ = options.width - others - name_;
    }
  }

  Line Titles() const {
    const std::string past = "last logged steps, to step " + std::to_string(state_.logged_step);
    return {Text("layer", "scale", "underf.%", "limit", "SQNR", sparkline_ == 0 ? "" : past)};
  }
  // Red: at least half of the gradient is lost; yellow: a tenth.
  Line Row(const WatchedLayer& layer) const {
    const bool dead = IsDead(state_, layer);
    const Color color = layer.broken || dead || layer.underflow_pct >= 50 ? Color::kRed
                        : layer.underflow_pct >= 10                       ? Color::kYellow
                                                                          : Color::kPlain;
    return {Text(layer.name, ScaleText(layer.scale, kScaleWidth, 3),
                 layer.broken ? "inf, NaN"
                 : dead       ? "all zero"
                              : PctText(layer.underflow_pct),
                 layer.limit.empty() ? "-" : layer.limit, SqnrMarks(layer, utf8_),
                 Sparkline(layer.history, sparkline_, utf8_)),
            color};
  }

 private:
  std::string Text(const std::string& name, const std::string& scale, const std::string& pct,
                   const std::string& limit, const std::string& sqnr,
                   const std::string& past) const {
    return PaddedText(name, name_) + "  " + PaddedText(scale, kScaleWidth, true) + "  " +
           PaddedText(pct, kPctWidth, true) + "  " + PaddedText(limit, kLimitWidth) + "  " +
           (has_blocks_ ? PaddedText(sqnr, kOperands) + "  " : "") + past;
  }

  const WatchState& state_;
  bool utf8_, has_blocks_ = false;
  std::size_t name_ = 5, sparkline_ = 0;
};

// The worst value among hidden layers, so that nobody has to scroll to be sure.
std::string Hidden(const WatchState& state, const std::vector<std::size_t>& shown) {
  double most = 0;
  for (std::size_t i = 0, next = 0; i < state.layers.size(); ++i) {
    if (next < shown.size() && shown[next] == i) {
      ++next;
    } else {
      most = std::max(most, state.layers[i].mean_pct());
    }
  }
  return "and " + std::to_string(state.layers.size() - shown.size()) +
         " more layers, mean underflow at most " + PctText(most) + " %";
}

}  // namespace

std::string Sparkline(const std::deque<double>& pct, std::size_t width, bool utf8) {
  const auto& marks = utf8 ? kBlocks : kAscii;
  std::string line;
  for (std::size_t i = pct.size() - std::min(width, pct.size()); i < pct.size(); ++i) {
    line += std::isnan(pct[i]) ? " " : std::isinf(pct[i]) ? "!" : marks[LevelOf(pct[i])];
  }
  return line;
}

std::vector<std::string> DrawWatch(const WatchState& state, const DrawOptions& options) {
  std::vector<Line> lines = InPieces(Header(state), options.width);
  const std::vector<Line> lost = InPieces(Lost(state), options.width);
  if (!state.layers.empty()) {
    const bool has_blocks = state.blocks.step > 0;
    const std::size_t around =
        lines.size() + lost.size() + (has_blocks ? 3 : 2);  // titles, legends
    std::size_t room = state.layers.size();
    // One line is reserved for the output of Hidden.
    if (options.height > 0 && around + room > options.height) {
      room = options.height > around + 1 ? options.height - around - 1 : 0;
    }
    const std::vector<std::size_t> shown = RowsThatFit(state, room);
    const Table table(state, shown, options);
    lines.push_back(table.Titles());
    for (const std::size_t i : shown) lines.push_back(table.Row(state.layers[i]));
    if (shown.size() < state.layers.size()) lines.push_back({Hidden(state, shown)});
    lines.push_back({Legend(options.utf8)});
    if (has_blocks) lines.push_back({SqnrLegend(options.utf8)});
  }
  lines.insert(lines.end(), lost.begin(), lost.end());
  if (options.height > 0 && lines.size() > options.height) lines.resize(options.height);
  std::vector<std::string> drawn;
  for (const Line& line : lines) {
    std::string text = CutText(line.text, options.width);
    text.erase(text.find_last_not_of(' ') + 1);
    drawn.push_back(Colored(options.color, line.color, text));
  }
  return drawn;
}

}  // namespace ada::study
