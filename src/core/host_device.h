// Marks a function that g++ and nvcc both compile: for the host, and for the device as well.
#pragma once

#ifdef __CUDACC__
#define ADA_HOST_DEVICE __host__ __device__
#else
#define ADA_HOST_DEVICE
#endif
