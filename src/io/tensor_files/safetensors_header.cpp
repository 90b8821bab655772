// An event handler for nlohmann's parser that accepts this one structure and nothing else: deep
// nesting, duplicate keys and giant values end the reading at once, without a document in memory.
#include "io/tensor_files/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "error.h"

namespace ada::safetensors {
namespace {

using nlohmann::json;
constexpr std::size_t kMaxRank = 32;
constexpr std::string_view kMetadataKey = "__metadata__";

// Reads characters and remembers where it stands, for messages.
class CountingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;  // NOLINT(readability-identifier-naming)
  using value_type = char;                              // NOLINT(readability-identifier-naming)
  using difference_type = std::ptrdiff_t;               // NOLINT(readability-identifier-naming)
  using pointer = const char*;                          // NOLINT(readability-identifier-naming)
  using reference = const char&;                        // NOLINT(readability-identifier-naming)

  CountingIterator() = default;
  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_ = nullptr;
  const char** furthest_ = nullptr;
};

DType ParseDType(std::string_view text) {
  for (int i = 0; i < static_cast<int>(DType::kOther); ++i)
    if (const auto dtype = static_cast<DType>(i); ToString(dtype) == text) return dtype;
  return DType::kOther;
}

// This is a state machine: `where_` says what may come next, and anything else ends the reading
// with the place where it stands. Every event returns true or throws.
class Handler : public nlohmann::json_sax<json> {
 public:
  Handler(const std::string& path, std::string_view json_text)
      : path_(path), begin_(json_text.data()), at_(json_text.data()) {}

  const char** position() { return &at_; }
  Header Take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (where_ == kStart) {
      where_ = kTop;
    } else if (where_ == kTopValue) {
      StartEntry();
    } else {
      Unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (text.find('\0') != std::string::npos) Fail("a name holds a NUL character");
    const bool fresh =
        where_ == kTop ? names_.insert(text).second : keys_of_entry_.insert(text).second;
    if (!fresh) Fail("duplicate key " + Shown(text));
    key_ = text;
    if (where_ == kTop) {
      where_ = kTopValue;
    } else if (where_ == kEntry && text == "dtype") {
      where_ = kDType;
    } else if (where_ == kEntry && (text == "shape" || text == "data_offsets")) {
      where_ = text == "shape" ? kShape : kOffsets;
    } else if (where_ == kMetadata) {
      where_ = kMetadataValue;
    } else {
      Fail("unknown key " + Shown(text) + " in tensor " + Shown(entry_.name) +
           " (known: dtype, shape, data_offsets)");
    }
    return true;
  }

  bool string(string_t& text) override {
    if (where_ == kMetadataValue) {
      header_.metadata[key_] = text;
      where_ = kMetadata;
    } else if (where_ == kDType) {
      entry_.dtype = ParseDType(text);
      if (entry_.dtype == DType::kOther) entry_.other_dtype = text;
      where_ = kEntry;
    } else {
      Unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != kShape && where_ != kOffsets) Unexpected("an array");
    where_ = where_ == kShape ? kShapeItems : kOffsetsItems;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (where_ == kShapeItems && entry_.shape.size() < kMaxRank) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) Unexpected("a number");
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else if (where_ == kShapeItems) {
      Fail("tensor " + Shown(entry_.name) + " has more than 32 dimensions");
    } else if (where_ == kOffsetsItems && offsets_.size() < 2) {
      offsets_.push_back(value);
    } else {
      Unexpected("a number");
    }
    return true;
  }

  bool end_array() override {
    if (where_ == kOffsetsItems && offsets_.size() != 2) {
      Fail("tensor " + Shown(entry_.name) + " needs two data_offsets, begin and end");
    }
    where_ = kEntry;
    return true;
  }

  bool end_object() override {
    if (where_ == kEntry) FinishEntry();
    where_ = where_ == kTop ? kEnd : kTop;
    return true;
  }

  // Some writers leave metadata that they do not have as null.
  bool null() override {
    if (where_ != kTopValue || key_ != kMetadataKey) return Unexpected("null");
    where_ = kTop;
    return true;
  }
  bool boolean(bool) override { return Unexpected("true or false"); }
  bool number_integer(std::int64_t) override { return Unexpected("a negative number"); }
  bool number_float(double, const string_t&) override {
    return Unexpected("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    Fail("the header is not valid JSON (UTF-8)");
  }

 private:
  // Each is a place between two events; those ending in Value or Items wait for a value.
  enum Where {
    kStart,
    kTop,
    kTopValue,
    kEntry,
    kDType,
    kShape,
    kShapeItems,
    kOffsets,
    kOffsetsItems,
    kMetadata,
    kMetadataValue,
    kEnd
  };

  [[noreturn]] void Fail(const std::string& what) const {
    throw DataError(path_ + ": near byte " +
                    std::to_string(kLengthBytes + static_cast<std::uint64_t>(at_ - begin_)) + ": " +
                    what);
  }

  [[noreturn]] bool Unexpected(const char* found) const {
    Fail(std::string("unexpected ") + found + (key_.empty() ? "" : " at key " + Shown(key_)) +
         "; expected {name: {dtype, shape, data_offsets}} and __metadata__ of strings");
  }

  void StartEntry() {
    keys_of_entry_.clear();
    where_ = key_ == kMetadataKey ? kMetadata : kEntry;
    entry_ = {};
    entry_.name = key_;
    offsets_.clear();
  }

  void FinishEntry() {
    if (keys_of_entry_.size() != 3) {
      Fail("tensor " + Shown(entry_.name) + " needs the keys dtype, shape and data_offsets");
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.entries.push_back(std::move(entry_));
  }

  const std::string& path_;
  const char* begin_;
  const char* at_;
  Where where_ = kStart;
  Header header_;
  TensorEntry entry_;
  std::vector<std::uint64_t> offsets_;
  std::string key_;
  std::unordered_set<std::string> names_;
  std::set<std::string> keys_of_entry_;
};

}  // namespace

Header ParseHeader(const std::string& path, std::string_view json_text, std::uint64_t file_size) {
  if (!json_text.starts_with('{')) {
    throw DataError(path + ": byte 8: a safetensors header starts with '{'");
  }
  Handler handler(path, json_text);
  const char* const end = json_text.data() + json_text.size();
  json::sax_parse(CountingIterator(json_text.data(), handler.position()),
                  CountingIterator(end, handler.position()), &handler);
  Header header = handler.Take();
  const std::uint64_t data_start = kLengthBytes + json_text.size();
  PlaceEntries(path, data_start, file_size - data_start, &header.entries);
  return header;
}

}  // namespace ada::safetensors
