// Sixteen lines at a time lie side by side in a buffer, so that one vector holds a value of each.
#include "backend/cpu/matmul/pack/transform.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "backend/cpu/block_kernels.h"
#include "backend/hadamard.h"

namespace ada::backend::cpu {

void TransformLines(const Kernels& kernels, const std::vector<float>& signs,
                    const BlockLayout& layout, float* values) {
  constexpr std::int64_t kLines = 16;
  alignas(64) std::array<float, kMostHadamard * kLines> buffer{};
  const TensorSpan span{buffer.data(), Storage::kF32};
  const std::int64_t size = std::ssize(signs), lines = layout.matrices * layout.rows;
  std::array<float*, kLines> places{};
  for (std::int64_t first = 0; first < lines; first += kLines) {
    const std::int64_t count = std::min(kLines, lines - first);
    for (std::int64_t k = 0; k < count; ++k)
      places[static_cast<std::size_t>(k)] = values +
                                            (first + k) / layout.rows * layout.matrix_stride +
                                            (first + k) % layout.rows * layout.row_stride;
    for (std::int64_t i = 0; i + size <= layout.length; i += size) {
      const auto move = [&](auto&& between) {
        for (std::int64_t k = 0; k < count; ++k) {
          float* const line = places[static_cast<std::size_t>(k)] + i * layout.stride;
          for (std::int64_t j = 0; j < size; ++j)
            between(line[j * layout.stride], buffer[static_cast<std::size_t>(j * kLines + k)]);
        }
      };
      move([](const float& here, float& there) { there = here; });
      BlockKernelsOf(kernels).hadamard(signs, span, span, kLines, kLines, kFp32);
      move([](float& here, const float& there) { here = there; });
    }
  }
}

}  // namespace ada::backend::cpu
