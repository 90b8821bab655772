// Encodes the messages of TensorBoard's event files as protocol buffers, and frames them as
// TFRecords.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "telemetry/tensorboard.h"

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

}  // namespace ada::telemetry
