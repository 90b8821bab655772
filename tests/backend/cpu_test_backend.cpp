// The tests of ops on the CPU backend.
#include "backend/cpu/cpu_backend.h"
#include "backend/test_backend.h"

namespace ada::backend::test {

const bool kTestsCpu = true;
std::unique_ptr<Backend> MakeTestBackend(int threads) { return cpu::MakeCpuBackend(threads); }

}  // namespace ada::backend::test
