// The columns of a CSV file are one table: each column name with the row's member that holds it.
// rows.h has the tables; this file writes and reads rows by such a table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"

namespace ada::telemetry {

// How a column's field is written, and whether a file must have it; combined with |. Without any, a
// number has nine significant digits, and inf, -inf and nan are written as words.
enum ColumnTraits : unsigned {
  kExact = 1,     // the shortest text that reads back to the same double; NaN is an empty field
  kEmptyNan = 2,  // NaN (of an optional number: none) is an empty field
  kPlain = 4,     // a whole number has no `.0`, and NaN is a word with kExact too
  kKey = 8,       // files of other versions have it too: without it a file is useless
  kWordNan = 16,  // with kExact: NaN is a word, since there always is a number
};

// The member's type decides that of the field; only these five types can be columns.
template <class Row>
struct Column {
  std::string_view name;
  std::variant<std::int64_t Row::*, bool Row::*, double Row::*, std::optional<double> Row::*,
               std::string Row::*>
      member;
  unsigned traits = 0;
};

// The table of a row is an array of Column<Row> in the order of the file: what its own function
// Columns() gives, or a specialization next to the row's definition.
template <class Row>
inline constexpr auto kColumns = Row::Columns();

// What a reader requires of a file.
enum class Expect {
  kAll,   // every column, as this version writes it: a run is resumed from the file
  kKeys,  // the key columns. A column that is missing, or a field that is empty, leaves the row's
          // default value
  kNone,  // the same, but key columns may be missing too, and what is no number counts as empty
};

void AppendField(CsvRow& fields, std::int64_t value, unsigned traits);
void AppendField(CsvRow& fields, bool value, unsigned traits);
void AppendField(CsvRow& fields, double value, unsigned traits);
void AppendField(CsvRow& fields, std::optional<double> value, unsigned traits);
void AppendField(CsvRow& fields, const std::string& value, unsigned traits);

// Returns the index of a column of `file`, or CsvReader::kMissing; throws DataError if it is
// missing but required. Nothing is required of a file without a header, because it has no rows
// either.
std::size_t FindColumn(const CsvReader& file, const std::string& name, unsigned traits,
                       Expect expect);
// Whether the field in the current row of the file leaves the row's default value.
bool LeavesDefault(const CsvReader& file, std::size_t column, unsigned traits, Expect expect);
// Parses that field into `value`; throws DataError, with file and line, if it has another type.
void ReadField(const CsvReader& file, std::size_t column, Expect expect, std::int64_t& value);
void ReadField(const CsvReader& file, std::size_t column, Expect expect, bool& value);
void ReadField(const CsvReader& file, std::size_t column, Expect expect, double& value);
void ReadField(const CsvReader& file, std::size_t column, Expect expect,
               std::optional<double>& value);
void ReadField(const CsvReader& file, std::size_t column, Expect expect, std::string& value);

// Returns the file's first line, without its line end.
template <class Row>
std::string Header() {
  std::string names;
  for (const Column<Row>& column : kColumns<Row>) {
    if (!names.empty()) names += ',';
    names += column.name;
  }
  return names;
}

// Returns the row in the order of its table, ready for CsvFile::Add.
template <class Row>
CsvRow FieldsOf(const Row& row) {
  CsvRow fields;
  for (const Column<Row>& column : kColumns<Row>) {
    std::visit([&](auto member) { AppendField(fields, row.*member, column.traits); },
               column.member);
  }
  return fields;
}

// Calls `use` with each row of the file that is still to be read.
template <class Row, class Use>
void ReadRows(CsvReader& file, Expect expect, const Use& use) {
  // Columns are found by name once, whatever their order in the file is.
  std::vector<std::size_t> places;
  for (const Column<Row>& column : kColumns<Row>) {
    places.push_back(FindColumn(file, std::string(column.name), column.traits, expect));
  }
  while (file.Next()) {
    Row row;
    auto place = places.begin();
    for (const Column<Row>& column : kColumns<Row>) {
      const std::size_t at = *place++;
      if (LeavesDefault(file, at, column.traits, expect)) continue;
      std::visit([&](auto member) { ReadField(file, at, expect, row.*member); }, column.member);
    }
    use(row);
  }
}

}  // namespace ada::telemetry
