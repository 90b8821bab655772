# A build for 64-bit ARM on another machine, with Debian's cross compiler:
#   cmake -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=tools/package/aarch64.cmake -DADA_SYSROOT=FOLDER
# FOLDER holds the libraries, as tools/package/sysroot.sh lays them out.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

# CMake tries compilers in projects of their own, which read this file too.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ADA_SYSROOT)
if(NOT ADA_SYSROOT)
  message(FATAL_ERROR "-DADA_SYSROOT is missing: the folder that tools/package/sysroot.sh has made")
endif()
get_filename_component(CMAKE_SYSROOT "${ADA_SYSROOT}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# What runs programs of this build here, in ctest too.
find_program(ADA_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(ADA_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${ADA_QEMU};-L;${CMAKE_SYSROOT}")
endif()
