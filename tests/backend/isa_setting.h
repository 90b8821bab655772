// Environment variables for a while: a backend reads them when it is made.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

#include "backend/cpu/cpu_backend.h"

namespace ada::backend::test {

class EnvironmentSetting {
 public:
  EnvironmentSetting(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) kept_ = old;
    setenv(name, value, 1);
  }
  ~EnvironmentSetting() { kept_ ? setenv(name_, kept_->c_str(), 1) : unsetenv(name_); }
  EnvironmentSetting(const EnvironmentSetting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> kept_;
};

struct IsaSetting : EnvironmentSetting {
  explicit IsaSetting(const char* value) : EnvironmentSetting("ADA_ISA", value) {}
};
// Convolutions without Winograd's algorithm: products of 16-bit values are exact.
struct DirectMatmuls : EnvironmentSetting {
  DirectMatmuls() : EnvironmentSetting("ADA_PRODUCTS", "direct") {}
};

// Whether a backend made now multiplies on a matrix unit.
inline bool HasAmx() { return cpu::MakeCpuBackend(1)->InstructionSet().starts_with("amx"); }

}  // namespace ada::backend::test
