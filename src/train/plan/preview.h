// A look at what training will see.
#pragma once
#include <iosfwd>
#include <string>

#include "config/config.h"

namespace ada::train {

// Writes a sheet of the first training batch, augmented, with its labels, as PNG to `path`, and a
// line about it to `out`.
void Preview(const config::Config& config, const std::string& path, std::ostream& out);

}  // namespace ada::train
