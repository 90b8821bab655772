// Ranges, texts and written values as JSON.
#include <cmath>
#include <cstdint>

#include "config/json_schema_parts.h"

namespace ada::config {
namespace {

using Json = SchemaJson;

// A number as short as it can be: whole ones without a point.
Json NumberJson(double value) {
  constexpr double kExact = 1e15;
  if (value == std::floor(value) && std::fabs(value) < kExact) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

}  // namespace

SchemaJson RangeSchema(const char* type, const Range& range) {
  Json json = {{"type", type}};
  if (std::isfinite(range.low)) {
    json[range.low_included ? "minimum" : "exclusiveMinimum"] = NumberJson(range.low);
  }
  if (std::isfinite(range.high)) {
    json[range.high_included ? "maximum" : "exclusiveMaximum"] = NumberJson(range.high);
  }
  return json;
}

SchemaJson TextSchema(const ValueSchema& form) {
  Json json = {{"type", "string"}};
  if (form.plain) json["type"] = {"string", "number", "boolean"};
  json["minLength"] = 1;
  if (!form.pattern.empty()) json["pattern"] = form.pattern;
  return json;
}

SchemaJson ValueOf(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      break;
    case YamlNode::Kind::kList: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(ValueOf(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const Entry& entry : node.entries) map[entry.key.text] = ValueOf(entry.value);
      return map;
    }
  }
  bool is_true = false;
  if (ReadSwitch(node, is_true).empty()) return is_true;
  long long whole = 0;
  if (ReadInteger(node, AnyNumber(), whole).empty()) return whole;
  double number = 0;
  if (ReadNumber(node, AnyNumber(), number).empty()) return number;
  return node.text;
}

}  // namespace ada::config
