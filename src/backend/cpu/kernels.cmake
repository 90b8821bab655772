# The kernels are compiled once per instruction set, each in its own namespace; SelectKernels picks a
# table at run time. Nothing else in the program needs more than x86-64, or another processor.
file(GLOB ADA_KERNEL_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/*.cpp)
set(ADA_KERNEL_OBJECTS "")
# Left to the compiler's vectorizer, in every set.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/values.cpp
                            ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/attention.cpp
                            ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/lrn.cpp
                            ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/softmax.cpp
                            ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/grouped_norm.cpp
                            ${CMAKE_SOURCE_DIR}/src/backend/cpu/kernels/update.cpp PROPERTIES
                            COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
set(ADA_AVX512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mf16c -mfma -mprefer-vector-width=512)
function(ada_kernels isa)  # the sources of one set
  add_library(ada_kernels_${isa} OBJECT ${ARGN})
  target_include_directories(ada_kernels_${isa} PRIVATE src)
  target_compile_definitions(ada_kernels_${isa} PRIVATE ADA_ISA=${isa})
  target_compile_options(ada_kernels_${isa} PRIVATE $<$<CONFIG:Release>:-O3> -fno-math-errno
                         -fno-trapping-math -Wno-psabi
                         # of GCC 12's own AVX-512 headers
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>)
  if(ADA_SANITIZE)
    target_compile_definitions(ada_kernels_${isa} PRIVATE ADA_SANITIZED)
  endif()
  if(ADA_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 misplaces vectors of 64 bytes in the frames that it makes for
    # detect_stack_use_after_return (loads and stores of them fault).
    target_compile_options(ada_kernels_${isa} PRIVATE --param=asan-use-after-return=0)
  endif()
endfunction()
# Products in fp32 (fused multiply-adds), for the sets that have them.
file(GLOB ADA_DIRECT_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/matmul/kernels/direct/*.cpp)
file(GLOB ADA_WINOGRAD_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/matmul/kernels/winograd/*.cpp)
foreach(isa ${ADA_KERNEL_SETS})
  if(isa MATCHES "sse2|generic")
    ada_kernels(${isa} ${ADA_KERNEL_SOURCES})
  else()
    ada_kernels(${isa} ${ADA_KERNEL_SOURCES} ${ADA_DIRECT_SOURCES} ${ADA_WINOGRAD_SOURCES})
  endif()
  list(APPEND ADA_KERNEL_OBJECTS $<TARGET_OBJECTS:ada_kernels_${isa}>)
endforeach()
# The narrower sets split every vector: less than -O3 keeps their compile time and size in bounds.
list(GET ADA_KERNEL_SETS 0 narrowest)
target_compile_options(ada_kernels_${narrowest} PRIVATE $<$<CONFIG:Release>:-O1>)
if("avx512" IN_LIST ADA_KERNEL_SETS)
  target_compile_options(ada_kernels_avx2 PRIVATE -mavx2 -mf16c -mfma $<$<CONFIG:Release>:-O2>)
  target_compile_options(ada_kernels_avx512 PRIVATE ${ADA_AVX512})

  # The same products with AVX-512's instructions for bf16.
  ada_kernels(avx512bf16 ${ADA_DIRECT_SOURCES})
  target_compile_options(ada_kernels_avx512bf16 PRIVATE ${ADA_AVX512} -mavx512bf16)
  list(APPEND ADA_KERNEL_OBJECTS $<TARGET_OBJECTS:ada_kernels_avx512bf16>)

  # Kernels on AMX tiles: one set.
  file(GLOB ADA_TILE_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cpu/matmul/kernels/amx/*.cpp)
  ada_kernels(amx ${ADA_TILE_SOURCES})
  target_compile_options(ada_kernels_amx PRIVATE ${ADA_AVX512} -mavx512bf16 -mamx-tile -mamx-bf16)
  list(APPEND ADA_KERNEL_OBJECTS $<TARGET_OBJECTS:ada_kernels_amx>)
endif()
add_library(ada_kernels STATIC ${ADA_KERNEL_OBJECTS})
