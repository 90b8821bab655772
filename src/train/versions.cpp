// What this program is made of.
#include "backend/cpu/cpu_backend.h"
#include "train/run.h"

#ifndef ADA_VERSION
#define ADA_VERSION "unknown"
#endif
#ifndef ADA_COMMIT
#define ADA_COMMIT "unknown"
#endif

namespace ada::train {

std::vector<Version> Versions() {
  return {{"ada-train", ADA_VERSION},
          {"commit", ADA_COMMIT},
#ifdef __clang__
          {"compiler", "clang " __clang_version__},
#else
          {"compiler", "g++ " __VERSION__},
#endif
          {"backends", "cpu"},
          {"cpu library", backend::cpu::LibraryVersion()},
          {"cuda", "not built in"}};
}

}  // namespace ada::train
