// Where two runs part, row by row. Files of equal runs are equal byte by byte (src/README.md), so
// any difference of a field counts, however small.
#include <algorithm>
#include <charconv>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "study/compare/comparison.h"
#include "study/run_files.h"

namespace ada::study {
namespace {

using telemetry::CsvReader;
using telemetry::LastRow;
using Fields = std::vector<std::string>;

// A file that has no header yet has no rows either: no column of it is needed.
std::size_t NeededColumn(const CsvReader& file, const char* name) {
  return file.header().empty() ? CsvReader::kMissing : file.Column(name);
}

// The same text, or the same number as another program may have written it (1024 and 1024.0).
bool Same(const std::string& a, const std::string& b) {
  if (a == b) return true;
  double x = 0, y = 0;
  const char *end_a = a.data() + a.size(), *end_b = b.data() + b.size();
  const auto of_a = std::from_chars(a.data(), end_a, x);
  const auto of_b = std::from_chars(b.data(), end_b, y);
  return of_a.ec == std::errc() && of_a.ptr == end_a && of_b.ec == std::errc() &&
         of_b.ptr == end_b && x == y;
}

// The columns that two files share, found by name: files of other versions may have more, fewer, or
// another order.
class SharedColumns {
 public:
  // `only`: no others than this one; empty: all.
  SharedColumns(const CsvReader& a, const CsvReader& b, const std::string& only = "") {
    for (std::size_t i = 0; i < a.header().size(); ++i) {
      const std::string& name = a.header()[i];
      if (!only.empty() && name != only) continue;
      if (const std::size_t other = b.Find(name); other != CsvReader::kMissing) {
        columns_.push_back({name, i, other, name == "mse" || name == "sqnr_db"});
      }
    }
  }

  // `field_a` and `field_b` give the text of a column.
  template <class A, class B>
  std::vector<ColumnDifference> Differences(A field_a, B field_b) const {
    std::vector<ColumnDifference> differences;
    for (const Column& column : columns_) {
      const std::string &a = field_a(column.a), &b = field_b(column.b);
      if (Same(a, b) || (column.of_probe && (a.empty() || b.empty()))) continue;
      differences.push_back({column.name, a, b});
    }
    return differences;
  }

 private:
  struct Column {
    std::string name;
    std::size_t a, b;
    bool of_probe;
  };
  std::vector<Column> columns_;
};

// The rows of one logged step, read a step at a time.
// Layers may stand in another order, or be missing, in the other run, so rows of a step are matched
// by layer and tensor. Only one step of each file is in memory.
class StepBlocks {
 public:
  StepBlocks(const std::string& folder, const std::string& name)
      : file_(CsvPath(folder, name), LastRow::kMayBeTorn),
        step_(NeededColumn(file_, "step")),
        layer_(NeededColumn(file_, "layer")),
        tensor_(file_.Find("tensor")),
        limit_(file_.Find("limit")) {
    more_ = file_.Next();
  }

  // What a row is about; the last part distinguishes attempts of one step. A layer's own decision
  // and that of a sum of branches are two rows of scales.csv with the same name.
  struct Key {
    std::string layer, tensor;
    bool branch;
    int attempt;
    bool operator<(const Key& other) const {
      return std::tie(layer, tensor, branch, attempt) <
             std::tie(other.layer, other.tensor, other.branch, other.attempt);
    }
  };
  struct Row {
    Key key;
    Fields fields;
  };

  const CsvReader& file() const { return file_; }
  std::int64_t step() const { return block_step_; }
  const std::vector<Row>& rows() const { return rows_; }

  bool Next() {
    rows_.clear();
    if (!more_) return false;
    block_step_ = file_.Integer(step_);
    std::map<Key, int> seen;
    for (; more_ && file_.Integer(step_) == block_step_; more_ = file_.Next()) {
      Key key{file_.Text(layer_), file_.Text(tensor_), file_.Text(limit_) == "branch", 0};
      key.attempt = seen[key]++;
      Row row{std::move(key), {}};
      for (std::size_t i = 0; i < file_.header().size(); ++i) row.fields.push_back(file_.Text(i));
      rows_.push_back(std::move(row));
    }
    return true;
  }

 private:
  CsvReader file_;
  std::size_t step_, layer_, tensor_, limit_;
  bool more_ = false;
  std::int64_t block_step_ = 0;
  std::vector<Row> rows_;
};

// Compares the blocks of one step; true where a row differs.
// Rows without a counterpart are counted and are no difference: a run may log more tensors.
bool CompareBlocks(const StepBlocks& a, const StepBlocks& b, const SharedColumns& columns,
                   FileComparison& result) {
  std::map<StepBlocks::Key, const Fields*> of_b;
  for (const StepBlocks::Row& row : b.rows()) of_b[row.key] = &row.fields;
  for (const StepBlocks::Row& row : a.rows()) {
    const auto other = of_b.find(row.key);
    if (other == of_b.end()) {
      ++result.only_a;
      continue;
    }
    auto differences = columns.Differences(
        [&](std::size_t i) -> const std::string& { return row.fields[i]; },
        [&](std::size_t i) -> const std::string& { return (*other->second)[i]; });
    of_b.erase(other);
    if (!differences.empty()) {
      result.difference = {a.step(), row.key.layer, row.key.tensor, std::move(differences)};
      return true;
    }
    ++result.same;
  }
  result.only_b += static_cast<std::int64_t>(of_b.size());
  return false;
}

}  // namespace

FileComparison CompareRows(const std::string& folder_a, const std::string& folder_b,
                           const std::string& file, const std::string& column) {
  CsvReader a(CsvPath(folder_a, file), LastRow::kMayBeTorn);
  CsvReader b(CsvPath(folder_b, file), LastRow::kMayBeTorn);
  const SharedColumns columns(a, b, column);
  const std::size_t step_a = NeededColumn(a, "step"), step_b = NeededColumn(b, "step");
  const std::size_t layer = a.Find("layer"), tensor = a.Find("tensor");
  FileComparison result;
  while (true) {
    const bool more_a = a.Next(), more_b = b.Next();
    if (more_a) result.last_a = a.Integer(step_a);
    if (more_b) result.last_b = b.Integer(step_b);
    if (!more_a && !more_b) return result;
    result.only_a += more_a && !more_b;
    result.only_b += more_b && !more_a;
    if (!more_a || !more_b) continue;
    auto differences =
        columns.Differences([&](std::size_t i) -> const std::string& { return a.Text(i); },
                            [&](std::size_t i) -> const std::string& { return b.Text(i); });
    if (!differences.empty()) {
      result.difference = {std::min(result.last_a, result.last_b), a.Text(layer), a.Text(tensor),
                           std::move(differences)};
      return result;
    }
    ++result.same;
  }
}

FileComparison CompareLayerRows(const std::string& folder_a, const std::string& folder_b,
                                const std::string& file, std::int64_t last) {
  StepBlocks a(folder_a, file), b(folder_b, file);
  const SharedColumns columns(a.file(), b.file());
  FileComparison result;
  bool more_a = a.Next(), more_b = b.Next();
  while ((more_a && a.step() <= last) || (more_b && b.step() <= last)) {
    if (more_a && more_b && a.step() == b.step()) {
      if (CompareBlocks(a, b, columns, result)) return result;
      result.last_a = result.last_b = a.step();
      more_a = a.Next();
      more_b = b.Next();
    } else if (more_a && (!more_b || a.step() < b.step())) {
      result.only_a += static_cast<std::int64_t>(a.rows().size());
      result.last_a = a.step();
      more_a = a.Next();
    } else {
      result.only_b += static_cast<std::int64_t>(b.rows().size());
      result.last_b = b.step();
      more_b = b.Next();
    }
  }
  return result;
}

}  // namespace ada::study
