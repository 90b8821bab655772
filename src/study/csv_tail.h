// The end of a CSV file that another process writes: rows as they come, without reading again what
// was read before.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ada::study {

class CsvTail {
 public:
  // Of a file that is longer than `window` bytes only so many at its end are read at first.
  explicit CsvTail(std::string path, std::int64_t window = INT64_MAX)
      : path_(std::move(path)), window_(window) {}

  // Whether what was read before is no longer there: the file became shorter, is gone, or its last
  // rows are others now (a resume cut it, another run took its place).
  bool Changed() const;
  void Restart();  // the next Read begins anew

  // Calls `row` with the fields of each whole row that was not there at the last Read; none while
  // there is no file.
  void Read(const std::function<void(const std::vector<std::string>&)>& row);

  // Index of a column; -1 where there is no such column, or no header yet.
  int Column(std::string_view name) const;

 private:
  void Start(int fd, std::int64_t size);

  std::string path_, last_;  // the last bytes that were read, up to offset_
  std::int64_t window_, offset_ = 0;
  std::vector<std::string> header_;
};

// Splits whole records off the front of `text` (RFC 4180; a quote that is out of place is an
// ordinary character) and returns them; `used`: their bytes.
std::vector<std::vector<std::string>> SplitCsv(std::string_view text, std::size_t* used);

}  // namespace ada::study
