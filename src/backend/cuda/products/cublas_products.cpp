// See cublas_products.h.
#include "backend/cuda/products/cublas_products.h"

#include <cublas_v2.h>

#include <string>

#include "backend/cuda/stream.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

// What cuBLAS asks for on Hopper. Of its own it would allocate within recordings.
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

class Matrices final : public Product {
 public:
  Matrices(cublasHandle_t handle, const ProductRequest& request)
      : handle_(handle), product_(MatrixProductOf(request)), type_(TypeOf(request.operands)) {}

  void Run(const ProductArguments& a) override {
    const MatrixProduct& p = product_;
    const float one = 1, zero = 0;
    const void* left = p.a_is_first ? a.first : a.second;
    const void* right = p.a_is_first ? a.second : a.first;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    Check(cublasGemmEx(handle_, Operation(p.transpose_a), Operation(p.transpose_b), size(p.m),
                       size(p.n), size(p.k), &one, left, type_, size(p.lda), right, type_,
                       size(p.ldb), &zero, a.out, CUDA_R_32F, size(p.ldc), CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT),
          "a matrix product");
  }

 private:
  cublasHandle_t handle_;
  MatrixProduct product_;
  cudaDataType_t type_;
};

}  // namespace

struct CublasProducts::State {
  explicit State(Stream& s) : stream(s) {}
  ~State() {
    if (handle != nullptr) cublasDestroy(handle);
    if (workspace != nullptr) stream.Free(workspace);
  }
  Stream& stream;
  cublasHandle_t handle = nullptr;
  std::byte* workspace = nullptr;
};

CublasProducts::CublasProducts(Stream& stream) : state_(std::make_unique<State>(stream)) {}
CublasProducts::~CublasProducts() = default;

std::size_t CublasProducts::workspace_bytes() const {
  return state_->workspace == nullptr ? 0 : kWorkspace;
}

// The handle is made with the first linear layer.
std::unique_ptr<Product> CublasProducts::Make(const ProductRequest& request) {
  ADA_CHECK(request.geometry.linear);
  if (request.out != Storage::kF32 || request.scale) return nullptr;
  State& s = *state_;
  if (s.handle == nullptr) {
    Check(cublasCreate(&s.handle), "making a handle");
    Check(cublasSetStream(s.handle, s.stream.handle()), "choosing the stream");
    s.workspace = s.stream.Allocate(kWorkspace);
    Check(cublasSetWorkspace(s.handle, s.workspace, kWorkspace), "setting the workspace");
    const int mode = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    Check(cublasSetMathMode(s.handle, static_cast<cublasMath_t>(mode)), "setting the mode");
  }
  return std::make_unique<Matrices>(s.handle, request);
}

}  // namespace ada::backend::cuda
