// Arrays of images do not name their axes; the shortest axis is taken for the channels.
#include "data/tensors/arrays.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/dataset.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::int64_t kFewChannels = 4;  // gray, RGB, RGB and one more
constexpr std::int64_t kArraysOfTask = 64;

template <std::size_t kBytes>
void Transpose(const std::byte* from, const ImageAxes& axes, std::byte* to) {
  const std::int64_t places = axes.height * axes.width;
  for (std::int64_t c = 0; c < axes.channels; ++c)
    for (std::int64_t i = 0; i < places; ++i)
      std::memcpy(to + static_cast<std::size_t>(i * axes.channels + c) * kBytes,
                  from + static_cast<std::size_t>(c * places + i) * kBytes, kBytes);
}

}  // namespace

ImageAxes AxesOf(const std::vector<std::int64_t>& shape, ArrayLayout layout) {
  ADA_CHECK(shape.size() == 3 || layout != ArrayLayout::kAuto);
  if (shape.size() == 3) return {shape[1], shape[2], 1};
  if (layout == ArrayLayout::kChw) return {shape[2], shape[3], shape[1]};
  return {shape[1], shape[2], shape[3]};
}

ArrayLayout LayoutOf(const TensorInFile& images) {
  const std::vector<std::int64_t>& s = images.shape;
  if (s.size() != 4 || s[3] <= kFewChannels || s[1] > kFewChannels) return ArrayLayout::kHwc;
  if (s[2] == s[3]) return ArrayLayout::kChw;
  throw DataError(images.place + ": has the shape " + DimsText(s) +
                  ", which may be [images, channels, height, width], or [images, height, width, "
                  "channels] of " +
                  Counted(s[1], "row") + " and " + Counted(s[3], "channel") +
                  "; say data.layout: chw or data.layout: hwc");
}

std::string LayoutText(const TensorInFile& images, ArrayLayout layout) {
  const ImageAxes axes = AxesOf(images.shape, layout);
  return images.name + " " + DimsText(images.shape) + " are read as " +
         (layout == ArrayLayout::kChw ? "chw: " : "hwc: ") + Counted(axes.height, "row") + ", " +
         Counted(axes.width, "column") + ", " + Counted(axes.channels, "channel") +
         " (data.layout: auto)";
}

void PutChannelsLast(std::span<const std::byte> from, const ImageAxes& axes,
                     std::size_t value_bytes, std::span<std::byte> to) {
  const auto bytes =
      static_cast<std::size_t>(axes.height * axes.width * axes.channels) * value_bytes;
  ADA_CHECK(from.size() == to.size() && from.size() % bytes == 0 &&
            (value_bytes == 1 || value_bytes == sizeof(float)));
  const auto transpose = value_bytes == 1 ? Transpose<1> : Transpose<sizeof(float)>;
  const auto images = static_cast<std::int64_t>(from.size() / bytes);
  RunRangesInParallel(images, kArraysOfTask, [&](std::int64_t begin, std::int64_t end) {
    // Each image is copied first, since `from` and `to` may be the same memory.
    std::vector<std::byte> image(bytes);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * bytes;
      std::memcpy(image.data(), from.data() + at, bytes);
      transpose(image.data(), axes, to.data() + at);
    }
  });
}

namespace {

// Calls `use` with the number in its own type.
template <class Use>
auto WithInteger(const std::byte* at, DType dtype, const Use& use) {
  const auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return use(value);
  };
  switch (dtype) {
    case DType::kU8:
      return read(std::uint8_t{});
    case DType::kI8:
      return read(std::int8_t{});
    case DType::kU16:
      return read(std::uint16_t{});
    case DType::kI16:
      return read(std::int16_t{});
    case DType::kU32:
      return read(std::uint32_t{});
    case DType::kI32:
      return read(std::int32_t{});
    case DType::kU64:
      return read(std::uint64_t{});
    default:
      return read(std::int64_t{});
  }
}

}  // namespace

bool IsInteger(DType dtype) {
  return !IsFloat(dtype) && dtype != DType::kBool && dtype != DType::kOther;
}

std::optional<std::int64_t> IntegerBelow(const std::byte* at, DType dtype, std::int64_t limit) {
  return WithInteger(at, dtype, [limit](auto value) -> std::optional<std::int64_t> {
    if (std::cmp_less(value, 0) || std::cmp_greater_equal(value, limit)) return std::nullopt;
    return static_cast<std::int64_t>(value);
  });
}

bool IntegerIs(const std::byte* at, DType dtype, std::int64_t number) {
  return WithInteger(at, dtype, [number](auto value) { return std::cmp_equal(value, number); });
}

std::string IntegerText(const std::byte* at, DType dtype) {
  return WithInteger(at, dtype, [](auto value) { return std::to_string(value); });
}

namespace {

// Metadata of safetensors are only texts, so a list has to be written as one, in JSON. JSON of some
// depth is refused before it is parsed: a list of texts has none.
std::vector<std::string> NamesOfJson(const std::string& text, const std::string& place) {
  const nlohmann::json list = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) { return depth <= 1; },
      /*allow_exceptions=*/false);
  const bool good = list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& name) {
                      return name.is_string();
                    });
  if (!good)
    throw DataError(place +
                    ": begins like a JSON list and is none of texts; expected "
                    "[\"cat\", \"dog\"], or cat,dog");
  return list.get<std::vector<std::string>>();
}

std::vector<std::string> NamesBetweenCommas(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n";
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    name.erase(0, std::min(name.find_first_not_of(kBlank), name.size()));
    name.erase(name.find_last_not_of(kBlank) + 1);
    names.push_back(name);
    begin = end + 1;
  }
  return names;
}

}  // namespace

std::vector<std::string> ClassesOfMetadata(const std::map<std::string, std::string>& metadata,
                                           const std::string& path) {
  const auto found = metadata.find("classes");
  if (found == metadata.end()) return {};
  const std::string place = path + ": metadata classes";
  const bool json = found->second.starts_with('[');
  const std::vector<std::string> names =
      json ? NamesOfJson(found->second, place) : NamesBetweenCommas(found->second);
  const bool unnamed =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); });
  if (names.empty() || unnamed) throw DataError(place + ": a name is empty, or there is none");
  const std::string twice = FirstTwice(names);
  if (!twice.empty())
    throw DataError(place + ": " + Shown(twice) + " is there twice; expected each class once");
  if (names.size() > static_cast<std::size_t>(kMostClasses))
    throw DataError(place + ": " + std::to_string(names.size()) + " names; expected at most " +
                    std::to_string(kMostClasses));
  return names;
}

}  // namespace ada::data
