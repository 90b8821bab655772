// `ada-train inspect` on a file of tensors made here.
#pragma once
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {

using Arguments = std::vector<std::string>;
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What `inspect` prints about a file of these tensors.
inline Outcome Inspect(const std::vector<RawTensor>& tensors, const Arguments& more) {
  const TempFolder folder;
  folder.Write("a.safetensors", TensorFile(tensors));
  return Run(With({"inspect", "a.safetensors"}, more), folder.path());
}

inline std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace ada::testing
