// What is said where the machine refuses a thread. Whoever starts threads joins those that it has
// before it throws this.
#pragma once
#include <string>
#include <system_error>

#include "core/error.h"

namespace ada {

// "cannot start a thread that <purpose>: ...", and what to do about it.
inline DeviceError ThreadRefused(const std::string& purpose, const std::system_error& error) {
  return DeviceError(
      "cannot start a thread that " + purpose + ": " + error.what() +
      "; use fewer threads (device.threads, --threads), end some processes, or raise "
      "their limit (ulimit -u, pids.max of the container)");
}

}  // namespace ada
