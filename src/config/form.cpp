// The forms' makers.
#include "config/form.h"

#include <utility>

namespace ada::config {

Form IntegerForm(Range range) {
  constexpr double kBeyond = 0x1p63;
  if (range.high >= kBeyond) {
    range.high = kBeyond;
    range.high_included = false;
  }
  Form form;
  form.kind = Form::Kind::kInteger;
  form.range = std::move(range);
  return form;
}

Form NumberForm(const Range& range) {
  Form form;
  form.kind = Form::Kind::kNumber;
  form.range = range;
  return form;
}

Form SwitchForm() {
  Form form;
  form.kind = Form::Kind::kSwitch;
  return form;
}

Form WordForm(Names words) {
  Form form;
  form.kind = Form::Kind::kWord;
  form.words = std::move(words);
  return form;
}

Form TextForm(std::string pattern, bool plain) {
  Form form;
  form.plain = plain;
  form.pattern = std::move(pattern);
  return form;
}

Form MapForm(MakeSection section, std::string marker) {
  Form form;
  form.kind = Form::Kind::kMap;
  form.section = std::move(section);
  form.marker = std::move(marker);
  return form;
}

Form ListForm(std::vector<Form> items, std::size_t least) {
  Form form;
  form.kind = Form::Kind::kList;
  form.items = std::move(items);
  form.least = least;
  return form;
}

}  // namespace ada::config
