// Reads TensorBoard's event files back, record by record, by protocol buffers' own rules.
#pragma once
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "telemetry/tensorboard.h"
#include "temp_folder.h"

namespace ada::testing {

// One message, field by field; numbers as their bytes or varints.
struct Field {
  int number;
  std::uint64_t varint;
  std::string bytes;
};

inline std::vector<Field> Fields(const std::string& message) {
  std::vector<Field> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE(at < message.size());
      const auto byte = static_cast<unsigned char>(message[at++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    Field field{static_cast<int>(key >> 3), 0, ""};
    const std::uint64_t type = key & 7;
    if (type == 0) {
      field.varint = varint();
    } else {
      const std::uint64_t size = type == 1 ? 8 : type == 5 ? 4 : varint();
      REQUIRE(at + size <= message.size());
      field.bytes = message.substr(at, size);
      at += size;
    }
    fields.push_back(field);
  }
  return fields;
}

template <class T>
T As(const std::string& bytes) {
  T value;
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

struct Event {
  std::int64_t step = 0;
  std::string version;
  bool start = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> histograms;  // HistogramProto's bytes
};

inline Event Decode(const std::string& record) {
  Event event;
  for (const Field& field : Fields(record)) {
    if (field.number == 1) CHECK(As<double>(field.bytes) > 1.6e9);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.varint);
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 7) event.start = Fields(field.bytes).at(0).varint == 1;
    if (field.number != 5) continue;
    for (const Field& value : Fields(field.bytes)) {
      const std::vector<Field> parts = Fields(value.bytes);
      REQUIRE(parts.size() == 2);
      if (parts[1].number == 2) event.scalars[parts[0].bytes] = As<float>(parts[1].bytes);
      if (parts[1].number == 5) event.histograms[parts[0].bytes] = parts[1].bytes;
    }
  }
  return event;
}

// The file's events, up to a torn one at its end.
inline std::vector<Event> Events(const TempFolder& folder, const std::string& name) {
  const std::string bytes = folder.Read("tensorboard/" + name);
  std::vector<Event> events;
  for (std::size_t at = 0; at + 12 <= bytes.size();) {
    const auto size = As<std::uint64_t>(bytes.substr(at, 8));
    if (at + size + 16 > bytes.size()) break;
    const std::string record = bytes.substr(at + 12, size);
    REQUIRE((bytes.substr(at, size + 16) == telemetry::Framed(record)));
    events.push_back(Decode(record));
    at += size + 16;
  }
  REQUIRE(!events.empty());
  CHECK(events[0].version == "brain.Event:2");
  return events;
}

inline std::set<std::string> Names(const TempFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "tensorboard")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace ada::testing
