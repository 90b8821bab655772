// Plans of NVIDIA's libraries: what all of a backend share, trying cuDNN's out, the convolutions
// that run by them, and the products of cuBLAS.
#pragma once
#include <cudnn.h>
#include <cudnn_frontend.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/matmul/plan_choice.h"
#include "backend/cuda/matmuls.h"

namespace ada::backend::cuda {

// References are to members of the Matmuls that owns it and outlives all plans.
struct CudnnContext {
  cudnnHandle_t handle;
  Stream& stream;
  Scratch& workspace;
  PlanCache& cache;
  const float *one, *two;  // numbers in backend memory
  bool autotune, deterministic;
  int skip;  // of the engines that come first
  std::vector<std::string>& diagnostics;
};

// The tensors of a graph, as MatmulArguments has them; kScale with HasEpilogue.
enum TensorId : std::int64_t { kFirst = 1, kSecond, kOut, kScale };

// --- Trials ---

// A product's plans tried out on memory that no layer depends on: to measure them, and to see that
// they round as is to be expected. Made while plans are made, never in a pass that is recorded; its
// memory is freed with it.
class PlanTrial {
 public:
  // Allocates operands, output and workspace for the plans of `graph` that are built.
  PlanTrial(const CudnnContext& context, const MatmulRequest& request,
            cudnn_frontend::graph::Graph& graph);

  // Runs all plans that are built and keeps the fastest. False where cuDNN refuses.
  bool KeepFastest();

  // Whether the plan built last gives -inf if a sum is below the range of a 16-bit output. On an
  // H200, cuDNN 9.14 had fp16 forward plans that gave 0 there (and +inf above the range), so that
  // neither the output nor its largest magnitude shows the overflow.
  bool KeepsOverflow();

  // Whether that plan's output doubles where the scale on the device does.
  bool Multiplies();

 private:
  struct Free {
    Stream* stream;
    void operator()(std::byte* block) const noexcept { stream->Free(block); }
  };
  using Block = std::unique_ptr<std::byte, Free>;

  Block Allocate(std::size_t bytes) const;
  // The first values of the output. Empty: cuDNN refuses.
  std::vector<float> Run();
  void Fill(const Block& block, int byte, std::size_t bytes) const;

  const CudnnContext& context_;
  const Storage stored_;  // of the output
  cudnn_frontend::graph::Graph& graph_;
  std::array<std::size_t, 3> bytes_;  // of both operands and the output
  std::array<Block, 3> blocks_;
  Block workspace_;
  std::unordered_map<std::int64_t, void*> tensors_;
};

// --- Convolutions ---

// Null where cuDNN has no plan.
std::unique_ptr<Matmul> MakeConvolution(const CudnnContext& context, const MatmulRequest& request);

// Linear layers, convolutions of 1x1 with stride 1 and attention as matrix products of cuBLAS:
// exact products of 16-bit or fp32 operands, fp32 sums, which are multiplied by a number on the
// device and rounded once where the output has 16 bits.
// Its matmuls point to its state and must not outlive it.
class CublasMatmuls final : public Matmuls {
 public:
  // one, zero: in backend memory.
  CublasMatmuls(Stream& stream, const float* one, const float* zero);
  ~CublasMatmuls() override;
  CublasMatmuls(const CublasMatmuls&) = delete;
  // Makes the matmul of a request that IsMatrix. Null where fp32 operands are to be rounded.
  std::unique_ptr<Matmul> Make(const MatmulRequest& request) override;
  std::unique_ptr<BatchedMatmul> MakeBatched(const BatchedRequest& request) override;
  std::size_t workspace_bytes() const override;

 private:
  struct State;
  void MakeHandle();
  std::unique_ptr<State> state_;
};

}  // namespace ada::backend::cuda
