// How a library is found, with one that is made up: without NVIDIA's, and without a device.
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/library.h"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "error.h"

namespace ada::backend::test {
namespace {

const std::filesystem::path kMadeUp = ADA_MADE_UP_LIBRARY;
const std::string kName = kMadeUp.filename().string();

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("library: one that is nowhere says where it was looked for and what to do") {
    const cuda::Library library("Nothing", "libada_nothing.so.7", {"/one", "/two"});
    const std::string why = library.WhyMissing();
    CHECK(why.find("Nothing cannot be loaded (libada_nothing.so.7: ") == 0);
    CHECK(why.find("; nor from /one, /two); install it, or put its folder into LD_LIBRARY_PATH") !=
          std::string::npos);
    CHECK(library.Find("AdaMadeUpAnswer") == nullptr);
    CHECK_THROWS_WITH_AS(library.Get("AdaMadeUpAnswer"), why.c_str(), DeviceError);
  }

  TEST_CASE("library: it is found in a folder, and whoever asks for its name then gets it too") {
    REQUIRE(dlopen(kName.c_str(), RTLD_NOW) == nullptr);
    const cuda::Library library("Made up", kName, {"/none", kMadeUp.parent_path().string()});
    CHECK(library.WhyMissing().empty());
    REQUIRE(library.Find("AdaMadeUpAnswer") != nullptr);
    CHECK(reinterpret_cast<int (*)()>(library.Get("AdaMadeUpAnswer"))() == 42);
    CHECK_THROWS_WITH_AS(library.Get("AdaNoAnswer"), "Made up has no function AdaNoAnswer",
                         DeviceError);
    // As cuDNN does where it wants NVRTC.
    void* const again = dlopen(kName.c_str(), RTLD_NOW);
    REQUIRE(again != nullptr);
    CHECK(dlsym(again, "AdaMadeUpAnswer") == library.Find("AdaMadeUpAnswer"));
    dlclose(again);
  }

  TEST_CASE("library: folders of the build, the toolkit and pip's packages, each once") {
    using Folders = std::vector<std::string>;
    CHECK(cuda::CudaFolders({.built_with = "", .major = "13"}) ==
          Folders{"/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64"});
    CHECK(cuda::CudaFolders({.built_with = "/usr/local/cuda/lib64",
                             .library_path = "/a:/env/nvidia/cudnn/lib/::/b",
                             .home = "/opt/cuda",
                             .path = "/opt/cuda/",
                             .major = "12"}) ==
          Folders{"/usr/local/cuda/lib64", "/opt/cuda/lib64", "/env/nvidia/cu12/lib",
                  "/env/nvidia/cublas/lib", "/env/nvidia/cuda_nvrtc/lib", "/env/nvidia/nccl/lib",
                  "/usr/local/cuda-12/lib64"});
  }
}

}  // namespace ada::backend::test
#endif
