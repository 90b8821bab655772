// The message with which a configuration is refused.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "error.h"

namespace ada::config {

// The text of the ConfigError that `read` throws; "(accepted)" where it throws none.
template <class Read>
std::string RefusalOf(Read&& read) {
  try {
    read();
  } catch (const ada::ConfigError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "(accepted)";
}

}  // namespace ada::config
