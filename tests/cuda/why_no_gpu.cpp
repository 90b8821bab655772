// The tests on a GPU are skipped, visibly, where there is none.
#include "backend/cuda/cuda_backend.h"
#include "skip.h"

std::string ada::testing::WhySkipAll() { return ada::backend::WhyNoCuda(0); }
