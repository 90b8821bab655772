// Reads the traces that `ada-train replay` takes: a CSV that may begin with `# ` comment lines, one
// row an attempt, of which a few columns matter. Keeps one row in memory.
#pragma once
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ada::train {

class TraceReader {
 public:
  // Opens the file and reads comments and header. Throws DataError with file and line, as all below
  // do, where something is wrong; so is a column name that stands there twice.
  explicit TraceReader(std::string path);

  bool Has(std::string_view column) const { return Find(column).has_value(); }
  // Throws DataError naming the file's columns, and `why` it is needed, where there is none.
  void Expect(std::string_view column, std::string_view why) const;

  // Goes to the next row; false at the end. A row has as many fields as the header.
  bool Next();
  // Fields of this row; the column must exist.
  bool Flag(std::string_view column) const;         // 0 or 1
  double Magnitude(std::string_view column) const;  // 0 or more, inf, nan
  std::int64_t Integer(std::string_view column) const;

 private:
  std::optional<std::size_t> Find(std::string_view column) const;
  bool ReadLine(std::string& line);
  std::vector<std::string> Split(const std::string& line) const;
  const std::string& Text(std::string_view column) const;
  [[noreturn]] void Fail(const std::string& problem) const;
  [[noreturn]] void FailAt(std::string_view column, const char* expected) const;

  std::string path_;
  std::ifstream file_;
  std::int64_t line_ = 0;
  std::vector<std::string> header_, fields_;
};

}  // namespace ada::train
