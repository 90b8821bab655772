// Collects the rows of a step into one event, and appends events to a file of their own for each
// process.
#include "telemetry/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "error.h"
#include "io/file.h"
#include "io/system_call.h"
#include "telemetry/totals.h"

namespace ada::telemetry {
namespace {

// The polynomial 0x1EDC6F41 with its bits reversed, as the bytes are taken lowest bit first.
constexpr std::array<std::uint32_t, 256> CrcTable() {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = CrcTable();

// Little endian, as both formats ask.
template <class Unsigned>
void AppendFixed(std::string& out, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    out += static_cast<char>(value >> (8 * byte) & 0xff);
  }
}

// TFRecord masks checksums, so that those of data that holds checksums itself are not weak.
void AppendChecksum(std::string& out, std::string_view bytes) {
  AppendFixed(out, std::rotr(Crc32c(bytes), 15) + 0xa282ead8u);
}

// Protocol buffers: a field is its key (number and wire type), then its value.
enum WireType { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };

// Seven bits a byte, the lowest first; the highest bit says that more follow.
void AppendVarint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

void AppendKey(std::string& out, int field, WireType type) {
  AppendVarint(out, static_cast<std::uint64_t>(field) << 3 | type);
}

void AppendDouble(std::string& out, int field, double value) {
  AppendKey(out, field, kFixed64);
  AppendFixed(out, std::bit_cast<std::uint64_t>(value));
}

void AppendBytes(std::string& out, int field, std::string_view bytes) {
  AppendKey(out, field, kDelimited);
  AppendVarint(out, bytes.size());
  out += bytes;
}

void AppendPacked(std::string& out, int field, const std::vector<double>& values) {
  AppendKey(out, field, kDelimited);
  AppendVarint(out, values.size() * sizeof(double));
  for (const double value : values) AppendFixed(out, std::bit_cast<std::uint64_t>(value));
}

// A conversion of a double beyond float's range would be undefined.
float ToFloat(double value) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  if (value > kLargest) return INFINITY;
  if (value < -kLargest) return -INFINITY;
  return static_cast<float>(value);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
std::string Event(double wall_time, std::int64_t step, int field, std::string_view content) {
  std::string event;
  AppendDouble(event, 1, wall_time);
  AppendKey(event, 2, kVarint);
  AppendVarint(event, static_cast<std::uint64_t>(step));
  AppendBytes(event, field, content);
  return event;
}

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

std::uint32_t Crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

std::string Framed(std::string_view record) {
  std::string out;
  out.reserve(record.size() + 16);
  AppendFixed(out, static_cast<std::uint64_t>(record.size()));
  AppendChecksum(out, std::string(out));
  out += record;
  AppendChecksum(out, record);
  return out;
}

// Summary: value = 1. Summary.Value: tag = 1, simple_value = 2, histo = 5.
void AppendScalar(std::string& summary, std::string_view tag, double value) {
  std::string message;
  AppendBytes(message, 1, tag);
  AppendKey(message, 2, kFixed32);
  AppendFixed(message, std::bit_cast<std::uint32_t>(ToFloat(value)));
  AppendBytes(summary, 1, message);
}

void AppendHistogram(std::string& summary, std::string_view tag, const EventHistogram& histogram) {
  std::string proto;
  AppendDouble(proto, 1, histogram.min);
  AppendDouble(proto, 2, histogram.max);
  AppendDouble(proto, 3, histogram.num);
  AppendDouble(proto, 4, histogram.sum);
  AppendDouble(proto, 5, histogram.sum_squares);
  AppendPacked(proto, 6, histogram.limits);
  AppendPacked(proto, 7, histogram.counts);
  std::string message;
  AppendBytes(message, 1, tag);
  AppendBytes(message, 5, proto);
  AppendBytes(summary, 1, message);
}

std::string VersionEvent(double wall_time) { return Event(wall_time, 0, 3, "brain.Event:2"); }

std::string SessionStartEvent(double wall_time, std::int64_t step) {
  std::string log;  // SessionLog: status = 1, of which START is 1
  AppendKey(log, 1, kVarint);
  AppendVarint(log, 1);
  return Event(wall_time, step, 7, log);
}

std::string SummaryEvent(double wall_time, std::int64_t step, std::string_view summary) {
  return Event(wall_time, step, 5, summary);
}

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
