// Collects the rows of a step into one event, and appends events to a file of their own for each
// process.
#include "telemetry/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "error.h"
#include "io/file.h"
#include "io/system_call.h"
#include "telemetry/totals.h"

namespace ada::telemetry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

// Those of earlier processes of the run are among them.
std::vector<fs::path> EventFiles(const std::string& folder) {
  std::vector<fs::path> files;
  for (const std::string& name : ListFolder(folder)) {
    if (IsEventFile(name)) files.push_back(fs::path(folder) / name);
  }
  return files;
}

// events.out.tfevents.SECONDS.HOST.PID.0: TensorBoard reads files in the order of their names, so
// SECONDS is larger than that of any file that is there.
// Two runs within one second, or a clock that was set back, must not change the order.
std::string NewName(const std::string& folder) {
  auto seconds = static_cast<std::int64_t>(WallTime());
  for (const fs::path& path : EventFiles(folder)) {
    const std::string name = path.filename().string();
    std::int64_t earlier = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), earlier);
    seconds = std::max(seconds, earlier + 1);
  }
  char digits[24];
  std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(seconds));
  return std::string(kPrefix) + digits + "." + HostName() + "." + std::to_string(getpid()) + ".0";
}

}  // namespace

bool IsEventFile(std::string_view name) { return name.starts_with(kPrefix); }

void RemoveEventFiles(const std::string& run_folder) {
  for (const fs::path& path : EventFiles(run_folder + "/" + kEventFolder)) {
    std::error_code error;
    fs::remove(path, error);
    if (error) throw OutputError(path.string() + ": cannot be deleted: " + error.message());
  }
}

EventHistogram ExponentHistogram(const ExponentBins& bins) {
  int low = ExponentBins::kLowest, high = ExponentBins::kHighest;
  while (low <= high && bins[low] == 0) ++low;
  while (high >= low && bins[high] == 0) --high;
  EventHistogram h;
  if (low > high) return h;
  h.min = low;
  h.max = high + 1;
  for (int exponent = low; exponent <= high; ++exponent) {
    const auto count = static_cast<double>(bins[exponent]);
    const double e = exponent;
    h.limits.push_back(e + 1);
    h.counts.push_back(count);
    h.num += count;
    h.sum += count * (e + 0.5);                      // the mean of [e, e + 1)
    h.sum_squares += count * (e * e + e + 1.0 / 3);  // the mean of its squares
  }
  return h;
}

TensorBoard::TensorBoard(const std::string& run_folder, std::int64_t first_step) {
  const std::string folder = run_folder + "/" + kEventFolder;
  CreateFolder(folder);
  path_ = folder + "/" + NewName(folder);
  buffer_ = Framed(VersionEvent(WallTime()));
  if (first_step > 1) buffer_ += Framed(SessionStartEvent(WallTime(), first_step));
  fd_ = OpenFile(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  if (fd_ < 0) {
    throw OutputError(path_ + ": cannot be created: " + std::generic_category().message(errno));
  }
  try {
    Flush();
  } catch (...) {
    CloseFile(fd_);
    throw;
  }
}

TensorBoard::~TensorBoard() {
  try {
    Flush();
  } catch (...) {  // a destructor cannot report it; Flush was there to do so
  }
  CloseFile(fd_);
}

void TensorBoard::Step(const StepRow& row) {
  std::string& summary = SummaryOf(row.step);
  AppendScalar(summary, "loss", row.loss);
  AppendScalar(summary, "accuracy", row.accuracy);
  AppendScalar(summary, "lr", row.lr);
  AppendScalar(summary, "scale", row.scale);
  AppendScalar(summary, "grad_norm", row.grad_norm);
}

void TensorBoard::Scale(std::int64_t step, const std::string& layer,
                        const scaling::ScaleDecision& decision) {
  std::string& summary = SummaryOf(step);
  const auto scale = static_cast<double>(decision.scale_out);
  if (decision.limit == scaling::Limit::kBranch) {
    AppendScalar(summary, "scale/" + layer + ".dy", scale);
    return;
  }
  AppendScalar(summary, "scale/" + layer, scale);
  if (!std::isnan(decision.alpha)) {
    AppendScalar(summary, "alpha/" + layer, static_cast<double>(decision.alpha));
  }
}

void TensorBoard::Underflow(std::int64_t step, const std::string& layer, const std::string& tensor,
                            const TensorStats& stats) {
  const std::int64_t nonzero = stats.numel - stats.zeros_before;
  if (nonzero <= 0) return;
  AppendScalar(SummaryOf(step), "underflow_pct/" + layer + "." + tensor,
               100.0 * static_cast<double>(stats.underflow) / static_cast<double>(nonzero));
}

void TensorBoard::Histogram(std::int64_t step, const std::string& layer, const std::string& tensor,
                            const ExponentBins& bins) {
  const EventHistogram histogram = ExponentHistogram(bins);
  if (histogram.limits.empty()) return;
  AppendHistogram(SummaryOf(step), "histogram/" + layer + "." + tensor, histogram);
}

void TensorBoard::Evaluation(const EvaluationRow& row) {
  std::string& summary = SummaryOf(row.step);
  const std::string tag = "evaluation/" + row.split + "/";
  AppendScalar(summary, tag + "loss", row.loss);
  if (std::isnan(row.top1)) return;
  AppendScalar(summary, tag + "top1", row.top1);
  AppendScalar(summary, tag + "top5", row.top5);
}

void TensorBoard::Classes(const ClassRow& all) {
  std::string& summary = SummaryOf(all.step);
  const std::string tag = "evaluation/" + all.split + "/";
  for (const Metric& metric : MetricsOf(all)) AppendScalar(summary, tag + metric.key, metric.value);
}

// A call for another step ends the event before: rows of one step come together.
std::string& TensorBoard::SummaryOf(std::int64_t step) {
  if (step != step_) EndEvent();
  step_ = step;
  return summary_;
}

void TensorBoard::EndEvent() {
  if (summary_.empty()) return;
  buffer_ += Framed(SummaryEvent(WallTime(), step_, summary_));
  summary_.clear();
}

// Bytes that were taken leave the buffer, so that a later Flush goes on within the record.
void TensorBoard::Flush() {
  EndEvent();
  const std::size_t done = WriteAll(fd_, buffer_);
  if (done < buffer_.size()) {
    const std::string reason = std::generic_category().message(errno);
    buffer_.erase(0, done);
    throw OutputError(path_ + ": cannot be written: " + reason);
  }
  buffer_.clear();
  if (!IsStillNamed(fd_, path_)) {
    throw OutputError(path_ +
                      ": was deleted, moved or replaced while the run wrote it, or its folder was; "
                      "--resume begins another");
  }
}

}  // namespace ada::telemetry
