// The backend that the tests of single ops run on. A test program links the source that defines it:
// cpu_test_backend.cpp, or cuda/kernels_test_backend.cpp for the CUDA backend's kernels.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ada::backend::test {

std::unique_ptr<Backend> MakeTestBackend(int threads);
// Whether that is the CPU backend, which alone has some of the rarer rules.
extern const bool kTestsCpu;

}  // namespace ada::backend::test
