// Writes and reads one field for each type of a row's member, exactly and without regard to the
// locale.
#include "telemetry/columns.h"

#include <cmath>

#include "error.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

// Under Expect::kNone a field that cannot be read leaves the value as it is; what is no DataError
// goes through all the same.
template <class T, class Parse>
void ReadNumber(Expect expect, T& value, const Parse& parse) {
  try {
    value = parse();
  } catch (const DataError&) {
    if (expect != Expect::kNone) throw;
  }
}

}  // namespace

void AppendField(CsvRow& fields, std::int64_t value, unsigned) { fields.Integer(value); }
void AppendField(CsvRow& fields, bool value, unsigned) { fields.Integer(value ? 1 : 0); }
void AppendField(CsvRow& fields, const std::string& value, unsigned) { fields.Text(value); }
void AppendField(CsvRow& fields, double value, unsigned traits) {
  if ((traits & kEmptyNan) != 0 && std::isnan(value)) {
    fields.Empty();
  } else if ((traits & kPlain) != 0) {
    fields.Text((traits & kExact) != 0 ? ShortestText(value) : NineDigits(value));
  } else if ((traits & kExact) != 0 && !((traits & kWordNan) != 0 && std::isnan(value))) {
    fields.Scale(value);
  } else {
    fields.Number(value);
  }
}
// An empty field says that there is no number; a NaN that is there is written as the word, so that
// the two stay apart.
void AppendField(CsvRow& fields, std::optional<double> value, unsigned traits) {
  if (!value) {
    fields.Empty();
  } else {
    AppendField(fields, *value, traits & ~static_cast<unsigned>(kEmptyNan));
  }
}

std::size_t FindColumn(const CsvReader& file, const std::string& name, unsigned traits,
                       Expect expect) {
  // A file without any header has no rows, so that a column that it lacks is no fault.
  const bool needed = expect == Expect::kAll || (expect == Expect::kKeys && (traits & kKey) != 0);
  return needed && !file.header().empty() ? file.Column(name) : file.Find(name);
}

bool LeavesDefault(const CsvReader& file, std::size_t column, unsigned traits, Expect expect) {
  if (!file.Text(column).empty()) return false;
  // A file of this version has an empty field only where its column's traits allow one; elsewhere
  // reading it fails.
  return expect != Expect::kAll || (traits & (kExact | kEmptyNan)) != 0;
}

void ReadField(const CsvReader& file, std::size_t column, Expect expect, std::int64_t& value) {
  ReadNumber(expect, value, [&] { return file.Integer(column); });
}
void ReadField(const CsvReader& file, std::size_t column, Expect expect, bool& value) {
  ReadNumber(expect, value, [&] { return file.Integer(column) != 0; });
}
void ReadField(const CsvReader& file, std::size_t column, Expect expect, double& value) {
  ReadNumber(expect, value, [&] { return file.Number(column); });
}
void ReadField(const CsvReader& file, std::size_t column, Expect expect,
               std::optional<double>& value) {
  ReadNumber(expect, value, [&] { return file.Number(column); });
}
void ReadField(const CsvReader& file, std::size_t column, Expect, std::string& value) {
  value = file.Text(column);
}

}  // namespace ada::telemetry
