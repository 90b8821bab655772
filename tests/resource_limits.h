// Lets the machine refuse to open files, or to give memory, for as long as it lives.
#pragma once
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "error.h"

namespace ada::testing {

class Limit {
 public:
  Limit(int resource, std::uint64_t to) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit limit = {static_cast<rlim_t>(to), before_.rlim_max};
    setrlimit(resource_, &limit);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  int resource_;
  rlimit before_ = {};
};

// UBSan checks through a pipe, which needs descriptors, that an object is of the type that it is
// used as, and remembers what it has seen: so this error is seen before none can be opened.
struct SeenError {
  SeenError() {
    try {
      throw DeviceError("seen");
    } catch (const Error& error) {
      ADA_CHECK(std::string(error.what()) == "seen");
    }
  }
};

class NoDescriptors : SeenError, Limit {
 public:
  NoDescriptors() : Limit(RLIMIT_NOFILE, 0) {}
};

// Limits memory to what the process has mapped now plus this many bytes.
class NoMemoryBeyond : Limit {
 public:
  explicit NoMemoryBeyond(std::uint64_t bytes) : Limit(RLIMIT_AS, Mapped() + bytes) {}

 private:
  static std::uint64_t Mapped() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * 4096;
  }
};

}  // namespace ada::testing
