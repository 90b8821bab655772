// The forms' makers.
#include "config/value_schema.h"

#include <utility>

namespace ada::config {

ValueSchema IntegerSchema(Range range) {
  constexpr double kBeyond = 0x1p63;
  if (range.high >= kBeyond) {
    range.high = kBeyond;
    range.high_included = false;
  }
  ValueSchema form;
  form.kind = ValueSchema::Kind::kInteger;
  form.range = std::move(range);
  return form;
}

ValueSchema NumberSchema(const Range& range) {
  ValueSchema form;
  form.kind = ValueSchema::Kind::kNumber;
  form.range = range;
  return form;
}

ValueSchema SwitchSchema() {
  ValueSchema form;
  form.kind = ValueSchema::Kind::kSwitch;
  return form;
}

ValueSchema WordSchema(Names words) {
  ValueSchema form;
  form.kind = ValueSchema::Kind::kWord;
  form.words = std::move(words);
  return form;
}

ValueSchema TextSchema(std::string pattern, bool plain) {
  ValueSchema form;
  form.plain = plain;
  form.pattern = std::move(pattern);
  return form;
}

ValueSchema MapSchema(MakeSection section, std::string marker) {
  ValueSchema form;
  form.kind = ValueSchema::Kind::kMap;
  form.section = std::move(section);
  form.marker = std::move(marker);
  return form;
}

ValueSchema ListSchema(std::vector<ValueSchema> items, std::size_t least) {
  ValueSchema form;
  form.kind = ValueSchema::Kind::kList;
  form.items = std::move(items);
  form.least = least;
  return form;
}

}  // namespace ada::config
