// Names of classes in the metadata of a safetensors file.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace ada::data {

// The names under the key `classes`: a JSON list of texts, or names between commas. Empty where
// there is no such key. DataError naming `path`: damaged JSON, a name that is empty, none, too
// many.
std::vector<std::string> ClassesOfMetadata(const std::map<std::string, std::string>& metadata,
                                           const std::string& path);

}  // namespace ada::data
