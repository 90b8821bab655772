# libada_scaling: the C interface of src/c_api as a library that other programs load (ctypes). Rooms
# are static libraries of a program; here their files are compiled once more, as a shared library's.
file(GLOB_RECURSE ada_c_api_sources CONFIGURE_DEPENDS src/c_api/*.cpp src/scaling/*.cpp src/number/*.cpp src/io/*.cpp
     src/config/keys/*.cpp src/config/yaml/*.cpp src/config/overrides.cpp)
add_library(ada_c_api SHARED ${ada_c_api_sources} src/config/sections/section_scaling.cpp
            src/config/sections/scaling_checks.cpp src/config/sections/section_block_format.cpp)
set_target_properties(ada_c_api PROPERTIES OUTPUT_NAME ada_scaling LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
                      CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                      UNITY_BUILD ${ADA_UNITY} UNITY_BUILD_BATCH_SIZE 16)
set_source_files_properties(src/c_api/statistics.cpp PROPERTIES COMPILE_OPTIONS -O3
                            SKIP_UNITY_BUILD_INCLUSION ON)
target_include_directories(ada_c_api PRIVATE src)
target_link_libraries(ada_c_api PRIVATE nlohmann_json::nlohmann_json yaml-cpp::yaml-cpp)
target_link_options(ada_c_api PRIVATE -Wl,--exclude-libs,ALL)
if(NOT ADA_SANITIZE AND NOT ADA_FUZZ)  # whose own symbols only a program has
  target_link_options(ada_c_api PRIVATE -Wl,--no-undefined)
endif()
