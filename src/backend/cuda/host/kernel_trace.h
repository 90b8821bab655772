// Which kernels a process has launched on the host executor, for the test that compares them with
// all that there are (tests/cuda/sanitizer_filter_test.py).
#pragma once
#include <typeinfo>

namespace ada::backend::cuda {

// Appends the type's name to the file that ADA_KERNEL_TRACE names, if it does. True.
bool NoteKernel(const std::type_info& kernel);

}  // namespace ada::backend::cuda
