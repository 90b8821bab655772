# The CUDA backend. Its sources are compiled twice: by nvcc for GPUs (ADA_CUDA, CMakeLists.txt next
# to this file) and by g++ for the host executor (tests/cuda/host), which only tests use. Only
# nvcc's side has device/, whose files call NVIDIA's libraries.
option(ADA_CUDA "build the CUDA backend" OFF)
set(ADA_CUDA_ARCH "75-real;80-real;86-real;89-real;90" CACHE STRING
    "GPUs to build for: 90 is sm_90 with PTX for newer ones, 90-real without")

file(GLOB_RECURSE ADA_CUDA_BOTH CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cpp)
list(FILTER ADA_CUDA_BOTH EXCLUDE REGEX "/cuda/absent.cpp$")
file(GLOB ADA_CUDA_HOST CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/host/*.cpp)
set(ADA_CUDA_DEVICE ${ADA_CUDA_BOTH})
list(FILTER ADA_CUDA_DEVICE INCLUDE REGEX "/cuda/device/[^/]*$")
list(REMOVE_ITEM ADA_CUDA_BOTH ${ADA_CUDA_DEVICE})
# NCCL goes with MPI: a process without others has nobody to talk to.
if(ADA_MPI)
  list(FILTER ADA_CUDA_DEVICE EXCLUDE REGEX "/nccl_absent.cpp$")
else()
  list(FILTER ADA_CUDA_DEVICE EXCLUDE REGEX "/nccl_link.cpp$")
endif()

# A namespace of its own lets both sides be linked into one program.
add_library(ada_backend_cuda_host STATIC EXCLUDE_FROM_ALL ${ADA_CUDA_BOTH} ${ADA_CUDA_HOST})
target_compile_definitions(ada_backend_cuda_host PUBLIC cuda=cuda_host)
target_include_directories(ada_backend_cuda_host PUBLIC src tests)
target_link_libraries(ada_backend_cuda_host PUBLIC ada_io ada_scaling PRIVATE ${CMAKE_DL_LIBS})

if(ADA_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${ADA_CUDA_ARCH})
  enable_language(CUDA)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of newer nvccs
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  add_subdirectory(src/backend/cuda)
else()
  add_library(ada_backend_cuda STATIC src/backend/cuda/absent.cpp)
  target_include_directories(ada_backend_cuda PUBLIC src)
  target_link_libraries(ada_backend_cuda PUBLIC ada_io ada_scaling)
endif()
