// The environment variable ADA_ISA for a while: it is read when a backend is made.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

#include "backend/cpu/cpu_backend.h"

namespace ada::backend::test {

class IsaSetting {
 public:
  explicit IsaSetting(const char* value) {
    if (const char* old = std::getenv("ADA_ISA")) kept_ = old;
    setenv("ADA_ISA", value, 1);
  }
  ~IsaSetting() { kept_ ? setenv("ADA_ISA", kept_->c_str(), 1) : unsetenv("ADA_ISA"); }
  IsaSetting(const IsaSetting&) = delete;

 private:
  std::optional<std::string> kept_;
};

// Whether a backend made now multiplies on a matrix unit.
inline bool HasTiles() { return cpu::MakeCpuBackend(1)->InstructionSet() == "amx"; }

}  // namespace ada::backend::test
