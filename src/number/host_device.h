// Marks a function for the host and the device, which both g++ and nvcc compile; and a loop of
// fixed length whose array should be kept in registers of the device.
#pragma once

#ifdef __CUDACC__
#define ADA_HOST_DEVICE __host__ __device__
#else
#define ADA_HOST_DEVICE
#endif
// Put before a loop. nvcc's compiler for host code does not accept the pragma.
#ifdef __CUDA_ARCH__
#define ADA_UNROLL _Pragma("unroll")
#else
#define ADA_UNROLL
#endif
