// Reads the JSON files that this program writes (checkpoints, summaries), which may have been cut,
// changed or forged: nothing in them is used before its type and range have been checked.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ada {

// Parses `text`, an object that nests at most kMaxJsonDepth deep; `path` is for messages. DataError
// where it is anything else.
inline constexpr int kMaxJsonDepth = 32;
nlohmann::json ParseJson(const std::string& path, std::string_view text);

// The members of one object, by name, with the required types. A member that is missing or has
// another type is a DataError: "FILE: FIELD: expected a whole number from 0, found -3".
class JsonFields {
 public:
  // `object`, which must outlive this, is at `place` ("layers.conv1") in `path`; "": the whole.
  JsonFields(const nlohmann::json& object, std::string path, std::string place = "");

  bool Has(const std::string& field) const;
  // A whole number from 0 to kLargestCount.
  std::int64_t Count(const std::string& field) const;
  std::uint64_t Unsigned(const std::string& field) const;
  double Number(const std::string& field) const;
  std::string Text(const std::string& field) const;
  // A list whose members are all such numbers, or such texts.
  std::vector<double> Numbers(const std::string& field) const;
  std::vector<std::string> TextList(const std::string& field) const;
  // The fields of an object within this one.
  JsonFields Object(const std::string& field) const;
  // An object whose members are all such numbers, such texts, or objects of such texts.
  std::map<std::string, std::int64_t> Counts(const std::string& field) const;
  std::map<std::string, std::string> Texts(const std::string& field) const;
  std::map<std::string, std::map<std::string, std::string>> TextMaps(
      const std::string& field) const;

  // Throws the DataError for a field that is not what was `expected`.
  [[noreturn]] void Fail(const std::string& field, const std::string& expected) const;

  // Counts of steps and bytes are limited so that sums of a few of them do not overflow.
  static constexpr std::int64_t kLargestCount = std::int64_t{1} << 53;

 private:
  const nlohmann::json& At(const std::string& field) const;
  std::string PlaceOf(const std::string& field) const;

  const nlohmann::json& object_;
  std::string path_, place_;
};

}  // namespace ada
