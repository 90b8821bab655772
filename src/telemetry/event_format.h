// The bytes of TensorBoard's event files: records framed as TFRecords, each a protocol buffer of
// type Event. Only the messages that are written here are encoded, by hand; the facts come from
// tensorboard's compat/proto/{event,summary}.proto and from TensorFlow's record_writer.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// Returns the CRC-32C (Castagnoli, RFC 3720 B.4).
std::uint32_t Crc32c(std::string_view bytes);

// Returns a record as it stands in the file: length (8 bytes), its checksum, the record, its
// checksum. Numbers are little endian; a checksum is Crc32c turned right by 15 bits, plus
// 0xa282ead8.
std::string Framed(std::string_view record);

// HistogramProto: counts[i] values lie from limits[i - 1] (the first: min) up to limits[i].
struct EventHistogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

// Append one Summary.Value to the bytes of a Summary. A value beyond float's range becomes inf.
void AppendScalar(std::string& summary, std::string_view tag, double value);
void AppendHistogram(std::string& summary, std::string_view tag, const EventHistogram& histogram);

// These make events, as records without their frame. `wall_time` is in seconds since 1970.
std::string VersionEvent(double wall_time);  // the first one of each file
// TensorBoard drops what earlier files have from this step on.
std::string SessionStartEvent(double wall_time, std::int64_t step);
std::string SummaryEvent(double wall_time, std::int64_t step, std::string_view summary);

}  // namespace ada::telemetry
