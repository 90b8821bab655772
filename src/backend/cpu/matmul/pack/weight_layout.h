// The layouts in which oneDNN wants weights or writes their gradient.
#pragma once
#include <cstddef>

#include "backend/cpu/matmul/matmul_geometry.h"

namespace ada::backend::cpu {

// One layout. Opaque outside
// onednn_matmul.cpp.
class WeightLayout;

bool SameLayout(const WeightLayout& a, const WeightLayout& b);
std::size_t LayoutBytes(const WeightLayout& layout);
// Between PyTorch's order and a layout.
void ToLayout(const MatmulGeometry& geometry, const float* plain, const WeightLayout& layout,
              float* out);
void FromLayout(const MatmulGeometry& geometry, const WeightLayout& layout, const float* in,
                float* plain);

}  // namespace ada::backend::cpu
