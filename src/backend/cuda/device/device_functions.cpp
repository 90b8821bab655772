// The functions of NVIDIA's libraries that this folder and cudnn-frontend call: each loads its
// library first and calls the function of its name there. One that is missing throws DeviceError.
#include <cublas_v2.h>
#include <cudnn.h>
#include <nvrtc.h>

#include "backend/cuda/library.h"

namespace {

using ada::backend::cuda::Cublas;
using ada::backend::cuda::Cudnn;
using ada::backend::cuda::Nvrtc;

// Calls the library's function of this name, whose parameters must have exactly these types. The
// arguments are passed on with the types of the declaration: the function at the address accepts no
// others.
template <class Result, class... Arguments>
Result Call(const ada::backend::cuda::Library& library, const char* name, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(library.Get(name))(arguments...);
}

}  // namespace

// These definitions stand for the libraries' own, so that the program links without them and starts
// where they are missing.
extern "C" {

// --- cuDNN ---

// What cudnn-frontend uses of cuDNN's backend interface, and what this program calls itself.
size_t cudnnGetVersion() { return Call<size_t>(Cudnn(), __func__); }
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return Call<const char*>(Cudnn(), __func__, status);
}
void cudnnGetLastErrorString(char* message, size_t max_size) {
  return Call<void>(Cudnn(), __func__, message, max_size);
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, handle);
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, handle);
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, handle, stream);
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, handle, stream);
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, type, descriptor);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, descriptor);
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, descriptor);
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, descriptor, name, type, count, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t wanted,
                                       int64_t* count, void* elements) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, descriptor, name, type, wanted, count, elements);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  return Call<cudnnStatus_t>(Cudnn(), __func__, handle, plan, variant_pack);
}

// --- cuBLAS ---

// Names with _v2 are those that the library has: its headers write them for the plain ones.
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle);
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle);
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, stream);
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, workspace, bytes);
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, mode);
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, mode);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                            cublasOperation_t transpose_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType a_type, int a_stride, const void* b,
                            cudaDataType b_type, int b_stride, const void* beta, void* c,
                            cudaDataType c_type, int c_stride, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, transpose_a, transpose_b, m, n, k, alpha,
                              a, a_type, a_stride, b, b_type, b_stride, beta, c, c_type, c_stride,
                              compute, algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transpose_a,
                                          cublasOperation_t transpose_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType a_type,
                                          int a_stride, long long a_step, const void* b,
                                          cudaDataType b_type, int b_stride, long long b_step,
                                          const void* beta, void* c, cudaDataType c_type,
                                          int c_stride, long long c_step, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return Call<cublasStatus_t>(Cublas(), __func__, handle, transpose_a, transpose_b, m, n, k, alpha,
                              a, a_type, a_stride, a_step, b, b_type, b_stride, b_step, beta, c,
                              c_type, c_stride, c_step, count, compute, algorithm);
}

// --- NVRTC ---

// cudnn-frontend compiles kernels of its own by NVRTC, whose version is a part of its plans.
nvrtcResult nvrtcVersion(int* major, int* minor) {
  return Call<nvrtcResult>(Nvrtc(), __func__, major, minor);
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char* name,
                               int headers, const char* const* texts, const char* const* names) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, source, name, headers, texts, names);
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program);
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, count, options);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, size);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, cubin);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, size);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  return Call<nvrtcResult>(Nvrtc(), __func__, program, log);
}

}  // extern "C"
