// Files of tensors that are given where safetensors are expected: what they are, and how to convert
// them.
#pragma once
#include <string>
#include <string_view>

namespace ada {

// Given a file's first bytes (some 100 are enough): "is a file of PyTorch (torch.save); convert it
// with ..." and the lines of Python that do; empty for bytes of no known kind.
std::string ForeignTensorsHint(const std::string& path, std::string_view begin);

}  // namespace ada
