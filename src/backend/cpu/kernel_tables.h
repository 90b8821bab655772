// The tables of all instruction sets, whether or not this processor has them: for SelectKernels and
// for tests that compare them.
#pragma once
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu {
namespace sse2 {
extern const Kernels kTable;
}
namespace avx2 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}
namespace amx {
extern const TileKernels kTileTable;
}
}  // namespace ada::backend::cpu
