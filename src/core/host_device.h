// Marks a function that g++ and nvcc both compile: for the host, and for the device as well; and a
// loop of fixed length whose array is to lie in a device's registers.
#pragma once

#ifdef __CUDACC__
#define ADA_HOST_DEVICE __host__ __device__
#else
#define ADA_HOST_DEVICE
#endif
// In front of a loop. nvcc's compiler for the host does not know it.
#ifdef __CUDA_ARCH__
#define ADA_UNROLL _Pragma("unroll")
#else
#define ADA_UNROLL
#endif
