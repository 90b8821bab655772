// Where a command is about to write, looked at before it does.
#pragma once
#include <string>
#include <vector>

namespace ada::cli {

// What a command reads and writes. `what` is the option or operand, for messages; an empty path is
// one that is not given. Devices and FIFOs may be read and written together.
// A command names all its paths, then calls Check once, before any work that takes long.
class OutputPaths {
 public:
  void Read(const std::string& what, const std::string& path);
  void Write(const std::string& what, const std::string& path);
  // Either file of a checkpoint stands for both.
  void ReadCheckpoint(const std::string& what, const std::string& path);
  // Throws ConfigError where two outputs are one file, where an output is what is read, and where a
  // run keeps it for itself.
  void Check() const;

 private:
  struct Named {
    std::string what, path;
  };
  std::vector<Named> read_, written_;
};

}  // namespace ada::cli
