# The inner loops of pictures are compiled once per instruction set, each in its own namespace, and
# chosen at run time (select_kernels.cpp).
set(ADA_PICTURE_KERNELS "")
foreach(isa ${ADA_KERNEL_SETS})
  add_library(ada_picture_kernels_${isa} OBJECT src/data/images/kernels/resize_kernels.cpp
              src/data/images/kernels/color_kernels.cpp)
  target_include_directories(ada_picture_kernels_${isa} PRIVATE src)
  target_compile_definitions(ada_picture_kernels_${isa} PRIVATE ADA_ISA=${isa})
  target_compile_options(ada_picture_kernels_${isa} PRIVATE $<$<CONFIG:Release>:-O3> -Wno-psabi
                         # of GCC 12's own headers
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>)
  if(ADA_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # see backend/cpu/kernels.cmake
    target_compile_options(ada_picture_kernels_${isa} PRIVATE --param=asan-use-after-return=0)
  endif()
  list(APPEND ADA_PICTURE_KERNELS $<TARGET_OBJECTS:ada_picture_kernels_${isa}>)
endforeach()
if("avx512" IN_LIST ADA_KERNEL_SETS)
  target_compile_options(ada_picture_kernels_avx2 PRIVATE -mavx2)
  target_compile_options(ada_picture_kernels_avx512 PRIVATE -mavx2 -mavx512f -mavx512bw -mavx512dq
                         -mavx512vl -mprefer-vector-width=512)
endif()
add_library(ada_picture_kernels STATIC ${ADA_PICTURE_KERNELS})
