// Keys of the published interface that this version does not implement: they are errors that say
// so.
#pragma once
#include <string>

namespace ada::config {

bool IsLaterKey(const std::string& path);

}  // namespace ada::config
