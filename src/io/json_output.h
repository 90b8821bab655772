// The JSON that commands print under --json: one object with the same first members whatever the
// command, so that a program can tell what it reads (configs/JSON.md).
#pragma once
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>

namespace ada {

using OrderedJson = nlohmann::ordered_json;

// The version of all these objects. Members may be added under the same number; one that is
// renamed, removed or changes its meaning raises it.
inline constexpr int kJsonVersion = 1;

// Begins the object of a command: {"command": "advise", "version": 1}.
OrderedJson CommandJson(const std::string& command);

// Prints it on one page, two blanks a level. Numbers that are not finite are null, and bytes that
// are not UTF-8 are shown as such (io/shown_text.h).
void PrintJson(const OrderedJson& json, std::ostream& out);

}  // namespace ada
