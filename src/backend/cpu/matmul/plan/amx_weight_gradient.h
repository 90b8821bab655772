// The weight gradient of convolutions and linear layers on AMX tiles (matmul_kernels.h):
//
//   dw[o][ky][kx][i] = sum over images and output pixels (r, q) of
//                      dy[r][q][o] * x[r * stride + ky * dilation - padding][same of q, kx][i]
//
// The unit sums over 32 values at a time, as 16 pairs. A pair holds the same pixel of two images,
// so that a tap's shift by a pixel is one by whole pairs: tiles of x may begin at any pixel without
// a copy. Narrow images are interleaved, `pairs` pairs at a time, so that few of a tile's 16 rows
// are empty:
//
//   a plane of a row of x:  pixel 0               pixel 1               ...   (64 bytes a pair:
//                           pair 0, pair 1, ...   pair 0, pair 1, ...          16 channels x 2)
//   a tile of x             16 pairs from any pixel on
//   a tile of dy            16 output channels x 16 pairs: dy transposed
//
// A plane has 16 channels of every stride-th pixel, and each part (matmul/kernels/amx/bf16_split.h)
// its own. Few channels are gathered instead: "channels" of a plane are then those of all taps of a
// kernel row.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/matmul/kernels/amx_gradient_args.h"
#include "backend/cpu/matmul/matmul_kernels.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"

namespace ada::backend::cpu {

// Shapes, planes, columns and groups are fixed by the layer; how a call's images lie depends on
// their number and is planned anew in each call.
class AmxWeightGradient final : public PartialGradients {
 public:
  // `geometry` has one group. Values of x and dy are sums of at most so many bf16 parts (PartsOf).
  AmxWeightGradient(const MatmulKernels& kernels, const MatmulGeometry& geometry, int x_parts,
                    int dy_parts);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  void Gather();
  void MakePlanes(int dilation);
  std::int64_t Blocks(int images, int pairs) const;
  WeightGradientPlan Plan(int images) const;
  template <class Visit>
  void ForWeights(const GradientGroup& group, Visit&& visit) const;
  std::int64_t OffsetOfBias(int channel) const;

  const MatmulKernels& kernels_;
  WeightGradientShape shape_;
  int kernel_w_ = 1;
  std::vector<GradientPlane> planes_;
  std::vector<GradientColumn> columns_;
  std::vector<GradientGroup> groups_;
  int tiles_ = 0;  // of dw
};

}  // namespace ada::backend::cpu
