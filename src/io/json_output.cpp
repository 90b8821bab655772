// nlohmann's writer makes null of what is not finite.
#include "io/json_output.h"

#include <ostream>

#include "io/shown_text.h"

namespace ada {
namespace {

// Names come from files and may hold any byte, which JSON does not allow.
void MakeUtf8(OrderedJson& json) {
  if (json.is_string()) {
    json = ValidUtf8(json.get<std::string>());
  } else if (json.is_structured()) {
    for (OrderedJson& member : json) MakeUtf8(member);
  }
}

}  // namespace

OrderedJson CommandJson(const std::string& command) {
  OrderedJson json;
  json["command"] = command;
  json["version"] = kJsonVersion;
  return json;
}

void PrintJson(const OrderedJson& json, std::ostream& out) {
  OrderedJson valid = json;
  MakeUtf8(valid);
  out << valid.dump(2, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
}

}  // namespace ada
