// Where CIFAR-10's binary files lie on this machine, for tests that need the real data set.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace ada::testing {

// $ADA_CIFAR10, else data/cifar-10 (ada-train fetch cifar10 puts it there); empty: in
// neither.
inline std::string Cifar10Folder() {
  const char* given = std::getenv("ADA_CIFAR10");
  for (const std::string folder : {given ? given : "", ADA_SOURCE_DIR "/data/cifar-10"}) {
    if (!folder.empty() && std::filesystem::exists(folder + "/data_batch_1.bin")) return folder;
  }
  return "";
}

}  // namespace ada::testing
