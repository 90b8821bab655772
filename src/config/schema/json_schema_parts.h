// The parts of which json_schema.cpp makes its document. Not for other folders.
#pragma once
#include <nlohmann/json.hpp>

#include "config/keys/keys.h"

namespace ada::config {

using SchemaJson = nlohmann::ordered_json;  // keys stay in the order written

// Numbers of `type` ("integer", "number") within a range.
SchemaJson RangeJson(const char* type, const Range& range);
// Text that fits the schema's pattern.
SchemaJson TextJson(const ValueSchema& schema);
// A value as a key writes it: a number, a boolean, text or a list or map of them.
SchemaJson ValueOf(const YamlNode& node);

// What the choices in a section refuse and need beyond its other rules: a list of if-thens. Those
// of a section within it that starts by the choice around it are among them; asked of that section
// itself they are those of the choice whose set_defaults was called last.
SchemaJson BranchesOf(const Section& section);

}  // namespace ada::config
