// NCCL's functions that this folder calls; see device_functions.cpp.
#include <nccl.h>

#include "backend/cuda/device/device_libraries.h"

namespace {

// Most functions return a status; the two that return texts are called by hand.
template <class... Arguments>
ncclResult_t Call(const char* name, Arguments... arguments) {
  using Function = ncclResult_t (*)(Arguments...);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(name))(arguments...);
}

}  // namespace

// As in device_functions.cpp: the program starts where NCCL is missing.
extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return Call(__func__, id); }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return Call(__func__, comm, ranks, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return Call(__func__, comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return Call(__func__, comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return Call(__func__, comm, error);
}
const char* ncclGetErrorString(ncclResult_t result) {
  using Function = const char* (*)(ncclResult_t);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(__func__))(result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  using Function = const char* (*)(ncclComm_t);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(__func__))(comm);
}
ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Call(__func__, mine, all, count, type, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Call(__func__, from, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Call(__func__, to, count, type, peer, comm, stream);
}
ncclResult_t ncclGroupStart() { return Call(__func__); }
ncclResult_t ncclGroupEnd() { return Call(__func__); }

}  // extern "C"
