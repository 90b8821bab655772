// A CSV file of a run's folder, read by column names: what run_files.h's functions share.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "study/run_files.h"
#include "telemetry/csv_reader.h"

namespace ada::study {

// A file of a run whose columns are found by name. A column that is optional (files of another
// version may lack it) and missing reads as empty.
class RunFile {
 public:
  static constexpr char kEveryRun[] =
      "every run of this program writes it: is this the folder of a run?";
  static constexpr std::size_t kMissing = std::numeric_limits<std::size_t>::max();

  // `made_by`: what makes the file, for the DataError where it is missing.
  RunFile(const std::string& folder, const std::string& name,
          const std::string& made_by = kEveryRun)
      : reader_(Existing(folder, name, made_by)) {}

  const std::vector<std::string>& header() const { return reader_.header(); }
  // A file that has no header yet has no rows either.
  std::size_t Column(std::string_view name) const {
    return header().empty() ? kMissing : reader_.Column(name);
  }
  std::size_t Optional(std::string_view name) const {
    const auto found = std::find(header().begin(), header().end(), name);
    return found == header().end() ? kMissing : static_cast<std::size_t>(found - header().begin());
  }

  bool Next() { return reader_.Next(); }
  bool Empty(std::size_t column) const {
    return column == kMissing || reader_.Text(column).empty();
  }
  const std::string& Text(std::size_t column) const {
    static const std::string empty;
    return column == kMissing ? empty : reader_.Text(column);
  }
  // Of an empty field: 0, NaN, 1.
  std::int64_t Integer(std::size_t column) const {
    return Empty(column) ? 0 : reader_.Integer(column);
  }
  double Number(std::size_t column) const { return Empty(column) ? NAN : reader_.Number(column); }
  double Scale(std::size_t column) const { return Empty(column) ? 1 : reader_.Number(column); }
  [[noreturn]] void Fail(const std::string& problem) const { reader_.Fail(problem); }

 private:
  static telemetry::CsvReader Existing(const std::string& folder, const std::string& name,
                                       const std::string& made_by) {
    if (!HasFile(folder, name)) {
      throw DataError(folder + "/" + name + ": the run has no such file; " + made_by);
    }
    return telemetry::CsvReader(folder + "/" + name, telemetry::LastRow::kMayBeTorn);
  }

  telemetry::CsvReader reader_;
};

// The two columns that every file begins with.
struct Place {
  explicit Place(const RunFile& file) : step(file.Column("step")), epoch(file.Optional("epoch")) {}
  template <class Row>
  void Read(const RunFile& file, Row& row) const {
    row.step = file.Integer(step);
    row.epoch = file.Integer(epoch);
  }
  std::size_t step, epoch;
};

}  // namespace ada::study
