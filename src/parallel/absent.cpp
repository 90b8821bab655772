// A build without MPI: every process is a run of its own.
#include <cstdlib>

#include "error.h"
#include "parallel/world.h"

namespace ada::parallel {

World StartWorld() {
  // Several processes that do not know of each other would all do the same work.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* count = std::getenv(name);
    if (count != nullptr && std::atoi(count) > 1)
      throw DeviceError(std::string("started as one of ") + count +
                        " processes, and this build knows one alone: tools/setup.sh --mpi, then "
                        "tools/build.sh --mpi");
  }
  return {};
}
std::string LibraryName() { return ""; }

}  // namespace ada::parallel
