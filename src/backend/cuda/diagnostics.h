// Lines about how ops run, for Backend::Diagnostics and Backend::Warnings.
#pragma once
#include <string>
#include <vector>

namespace ada::backend::cuda {

class DiagnosticLines {
 public:
  // Each line is kept once.
  void Diagnose(const std::string& line);
  // Operands of 16 bits of this matmul ("weight gradient") are widened, and it multiplies fp32
  // numbers, which Tensor Cores do not.
  void Widened(const std::string& layer, const std::string& product);
  // Steps, or parts of them, are launched kernel by kernel, because the device refused to record
  // them. The first reason is kept.
  void NotRecorded(const std::string& why);

  const std::vector<std::string>& diagnostics() const { return diagnostics_; }
  // At most two lines: one for all that were widened, one for what was not recorded.
  std::vector<std::string> Warnings() const;

 private:
  struct Layer {
    std::string name;
    std::vector<std::string> products;
  };
  std::vector<std::string> diagnostics_;
  std::vector<Layer> widened_;  // in the order in which they were made
  std::string not_recorded_;
};

}  // namespace ada::backend::cuda
