// See cudnn_plans.h.
#include <cublas_v2.h>

#include <limits>
#include <string>

#include "backend/cuda/device/cudnn_plans.h"
#include "backend/cuda/stream.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// What cuBLAS asks for on Hopper. Without it cuBLAS would allocate memory within recordings.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

void Check(cublasStatus_t status, const char* doing) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(std::string("cuBLAS, ") + doing + ": status " +
                      std::to_string(static_cast<int>(status)));
}

cudaDataType_t TypeOf(Storage storage) {
  return storage == Storage::kF32   ? CUDA_R_32F
         : storage == Storage::kF16 ? CUDA_R_16F
                                    : CUDA_R_16BF;
}
cublasOperation_t Operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

// What all products share: the handle, and numbers on the device.
struct CublasContext {
  cublasHandle_t handle = nullptr;
  const float *one = nullptr, *zero = nullptr;
};

// cuBLAS reads matrices by columns: ColumnMatmulOf says how a product of rows is one of columns.
class Matrices final : public Matmul {
 public:
  Matrices(const CublasContext& context, const MatmulRequest& request)
      : context_(context),
        matmul_(ColumnMatmulOf(request)),
        type_(TypeOf(request.operands)),
        out_(TypeOf(request.out)),
        scaled_(request.scale) {
    for (const std::int64_t size : {matmul_.m, matmul_.n, matmul_.k})
      ADA_CHECK(size <= std::numeric_limits<int>::max());
  }

  // The number is read on the device when the product runs, since a recorded launch is replayed
  // with another alpha.
  void Run(const MatmulArguments& a) override {
    if (!scaled_) {
      const float one = 1, zero = 0;
      return Multiply(a, CUBLAS_POINTER_MODE_HOST, &one, &zero);
    }
    Multiply(a, CUBLAS_POINTER_MODE_DEVICE, a.scale != nullptr ? a.scale : context_.one,
             context_.zero);
  }

 private:
  // C = scale * A B; zero: times C, which is not read then.
  void Multiply(const MatmulArguments& a, cublasPointerMode_t mode, const float* scale,
                const float* zero) const {
    const ColumnMatmul& p = matmul_;
    const void* left = p.a_is_first ? a.first : a.second;
    const void* right = p.a_is_first ? a.second : a.first;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    Check(cublasSetPointerMode(context_.handle, mode), "choosing where numbers lie");
    Check(cublasGemmEx(context_.handle, Operation(p.transpose_a), Operation(p.transpose_b),
                       size(p.m), size(p.n), size(p.k), scale, left, type_, size(p.lda), right,
                       type_, size(p.ldb), zero, a.out, out_, size(p.ldc), CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          "a matrix product");
  }

  const CublasContext& context_;
  ColumnMatmul matmul_;
  cudaDataType_t type_, out_;
  bool scaled_;
};

// By columns, where each matrix is its own transpose: out' = second' first'.
class BatchedMatrices final : public BatchedMatmul {
 public:
  BatchedMatrices(const CublasContext& context, const BatchedRequest& request)
      : context_(context), request_(request), type_(TypeOf(request.operands)) {
    for (const std::int64_t size : {request.rows, request.columns, request.terms})
      ADA_CHECK(size <= std::numeric_limits<int>::max());
  }
  void Run(const void* first, const void* second, float* out, int batches) override {
    const BatchedRequest& r = request_;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    const float one = 1, zero = 0;
    Check(cublasSetPointerMode(context_.handle, CUBLAS_POINTER_MODE_HOST),
          "choosing where numbers lie");
    Check(
        cublasGemmStridedBatchedEx(
            context_.handle, Operation(r.transpose_second), Operation(r.transpose_first),
            size(r.columns), size(r.rows), size(r.terms), &one, second, type_,
            size(r.transpose_second ? r.terms : r.columns), r.terms * r.columns, first, type_,
            size(r.transpose_first ? r.rows : r.terms), r.rows * r.terms, &zero, out, CUDA_R_32F,
            size(r.columns), r.rows * r.columns, batches, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "products of many matrices");
  }

 private:
  const CublasContext& context_;
  BatchedRequest request_;
  cudaDataType_t type_;
};

}  // namespace

struct CublasMatmuls::State {
  explicit State(Stream& s) : stream(s) {}
  ~State() {
    if (context.handle != nullptr) cublasDestroy(context.handle);
    if (workspace != nullptr) stream.Free(workspace);
  }
  Stream& stream;
  CublasContext context;
  std::byte* workspace = nullptr;
};

CublasMatmuls::CublasMatmuls(Stream& stream, const float* one, const float* zero)
    : state_(std::make_unique<State>(stream)) {
  state_->context.one = one, state_->context.zero = zero;
}
CublasMatmuls::~CublasMatmuls() = default;

std::size_t CublasMatmuls::workspace_bytes() const {
  return state_->workspace == nullptr ? 0 : kWorkspace;
}

// The handle is made with the first product. Its workspace is its own and its stream one, so that
// it gives the same bits in every run, sums of several parts included ("Results reproducibility" in
// cuBLAS's documentation).
void CublasMatmuls::MakeHandle() {
  State& s = *state_;
  cublasHandle_t& handle = s.context.handle;
  if (handle != nullptr) return;
  Check(cublasCreate(&handle), "making a handle");
  Check(cublasSetStream(handle, s.stream.handle()), "choosing the stream");
  s.workspace = s.stream.Allocate(kWorkspace);
  Check(cublasSetWorkspace(handle, s.workspace, kWorkspace), "setting the workspace");
  const int mode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  Check(cublasSetMathMode(handle, static_cast<cublasMath_t>(mode)), "setting the mode");
}

std::unique_ptr<Matmul> CublasMatmuls::Make(const MatmulRequest& request) {
  ADA_CHECK(IsMatrix(request.geometry));
  if (request.out != Storage::kF32 && request.out != request.operands) return nullptr;
  MakeHandle();
  return std::make_unique<Matrices>(state_->context, request);
}

std::unique_ptr<BatchedMatmul> CublasMatmuls::MakeBatched(const BatchedRequest& request) {
  MakeHandle();
  return std::make_unique<BatchedMatrices>(state_->context, request);
}

}  // namespace ada::backend::cuda
