// Where recordings of detection, segmentation and their networks lie: a part in tests/golden, and
// where ADA_GOLDEN_VISION names a folder all that was recorded there, or other recordings of the
// same kinds.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace ada::testing {

// The folders that hold recordings of `part` ("networks", "whole", ...), ours first.
inline std::vector<std::string> VisionFolders(const std::string& part) {
  std::vector<std::string> folders = {std::string(ADA_SOURCE_DIR) + "/tests/golden/" + part};
  if (const char* whole = std::getenv("ADA_GOLDEN_VISION"))
    folders.push_back(std::string(whole) + "/" + part);
  std::erase_if(folders, [](const std::string& f) { return !std::filesystem::is_directory(f); });
  return folders;
}

}  // namespace ada::testing
