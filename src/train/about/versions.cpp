// What this program is made of.
#include "train/about/versions.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"

// The build defines both; a compilation without it still works.
#ifndef ADA_VERSION
#define ADA_VERSION "unknown"
#endif
#ifndef ADA_COMMIT
#define ADA_COMMIT "unknown"
#endif

namespace ada::train {

std::vector<Version> Versions(const parallel::World& world) {
  const std::string cuda = backend::CudaVersions();
  std::vector<Version> all = {{"ada-train", ADA_VERSION},
                              {"commit", ADA_COMMIT},
#ifdef __clang__
                              {"compiler", "clang " __clang_version__},
#else
                              {"compiler", "g++ " __VERSION__},
#endif
                              {"backends", cuda == "not built in" ? "cpu" : "cpu, cuda"},
                              {"cpu library", backend::cpu::LibraryVersion()},
                              {"cuda", cuda}};
  const std::string mpi = parallel::LibraryName();
  if (!mpi.empty()) all.push_back({"mpi", mpi});
  if (!world.library().empty()) all.push_back({"processes", parallel::DescribeProcesses(world)});
  return all;
}

}  // namespace ada::train
