// The tables of rows.h: each column is documented, in order and with its type, and what is written
// by a table is read back by it.
#include "telemetry/columns.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "error.h"
#include "telemetry/rows.h"
#include "temp_folder.h"

using namespace ada::telemetry;
using ada::testing::TempFolder;

namespace {

struct Documented {
  std::string name, type;
  bool operator==(const Documented&) const = default;
};

std::string Trimmed(const std::string& cell) {
  const std::size_t begin = cell.find_first_not_of(" `"), end = cell.find_last_not_of(" `");
  return begin == std::string::npos ? "" : cell.substr(begin, end + 1 - begin);
}

// The words of a text that stand in backticks.
std::vector<std::string> InBackticks(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = text.find('`'); begin != std::string::npos;) {
    const std::size_t end = text.find('`', begin + 1);
    words.push_back(text.substr(begin + 1, end - begin - 1));
    begin = text.find('`', end + 1);
  }
  return words;
}

// The columns of one file in README.md: the first table below its heading.
std::vector<Documented> InReadme(const std::string& file) {
  std::ifstream readme(std::string(ADA_SOURCE_DIR) + "/src/telemetry/README.md");
  std::vector<Documented> columns;
  std::string line;
  while (std::getline(readme, line) && line != "## " + file) continue;
  while (std::getline(readme, line) && line != "| column | type | meaning |") continue;
  std::getline(readme, line);  // the line below the titles
  while (std::getline(readme, line) && line.starts_with("| ")) {
    const std::size_t second = line.find('|', 1), third = line.find('|', second + 1);
    const std::string meaning = line.substr(third + 1);
    const std::string type = Trimmed(line.substr(second + 1, third - second - 1));
    CHECK(Trimmed(meaning.substr(0, meaning.size() - 1)).size() > 3);
    const std::vector<std::string> names = InBackticks(line.substr(0, second));
    if (!type.empty()) {  // one column, or several beside each other
      for (const std::string& name : names) columns.push_back({name, type});
      continue;
    }
    REQUIRE(names.size() == 2);  // the first and the last of several columns of another file
    const std::vector<std::string> other = InBackticks(meaning);
    REQUIRE(other.size() == 1);
    const std::vector<Documented> all = InReadme(other[0]);
    const auto first = std::ranges::find(all, names[0], &Documented::name);
    const auto last = std::ranges::find(first, all.end(), names[1], &Documented::name);
    REQUIRE(last != all.end());
    columns.insert(columns.end(), first, last + 1);
  }
  return columns;
}

template <class Row>
struct TypeName {
  unsigned traits;
  std::string operator()(std::int64_t Row::*) const { return "integer"; }
  std::string operator()(bool Row::*) const { return "flag"; }
  std::string operator()(double Row::*) const {
    return (traits & kExact) != 0 ? "scale" : "number";
  }
  std::string operator()(std::optional<double> Row::*) const { return "number"; }
  std::string operator()(std::string Row::*) const { return "text"; }
};

template <class Row>
void CheckDocumented() {
  CAPTURE(Row::kFile);
  std::vector<Documented> columns;
  for (const Column<Row>& column : kColumns<Row>) {
    columns.push_back(
        {std::string(column.name), std::visit(TypeName<Row>{column.traits}, column.member)});
  }
  const std::vector<Documented> documented = InReadme(Row::kFile);
  REQUIRE(documented.size() == columns.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    CHECK(documented[i].name == columns[i].name);
    CHECK(documented[i].type == columns[i].type);
  }
}

// The rows of a file with this text, and what is wrong with it.
template <class Row>
std::vector<Row> Read(const TempFolder& folder, const std::string& text, Expect expect) {
  folder.Write("a.csv", text);
  CsvReader file(folder / "a.csv");
  std::vector<Row> rows;
  ReadRows<Row>(file, expect, [&](const Row& row) { rows.push_back(row); });
  return rows;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("README.md has every column of every file, in order, with its type") {
    CheckDocumented<StepRow>();
    CheckDocumented<ScaleRow>();
    CheckDocumented<TensorRow>();
    CheckDocumented<HistogramRow>();
    CheckDocumented<WhatIfRow>();
    CheckDocumented<WhatIfBlockRow>();
    CheckDocumented<ProbeRow>();
    CheckDocumented<BlockRow>();
    CheckDocumented<AccumulatorRow>();
    CheckDocumented<WhatIfAccumulatorRow>();
    CheckDocumented<EventRow>();
    CheckDocumented<EvaluationRow>();
    CheckDocumented<ClassRow>();
    CheckDocumented<ConfusionRow>();
    CheckDocumented<LossRow>();
    CheckDocumented<TimingRow>();
  }

  TEST_CASE("a row that is written is read back; what does not apply is empty") {
    const TempFolder folder;
    TensorRow row{.step = 3, .epoch = 2, .layer = "a, \"b\"", .tensor = "dx", .format = "fp16"};
    row.scale = 0.1;
    row.numel = 5'000'000'000;
    row.max_abs = INFINITY;
    row.mean = NAN;
    CHECK(FieldsOf(row).text() ==
          "3,2,\"a, \"\"b\"\"\",dx,fp16,0.1,5000000000,0,0,0,,,,0,0,0,0,,inf,nan,nan,nan,nan,,,,");
    row.range_log2 = NAN;  // there is one, and it is no number
    row.sqnr_db = 1.0 / 3;
    const std::string text = Header<TensorRow>() + "\n" + FieldsOf(row).text() + "\n";
    CHECK(text.ends_with(",nan,,0.333333333,\n"));
    for (const Expect expect : {Expect::kAll, Expect::kKeys, Expect::kNone}) {
      const std::vector<TensorRow> rows = Read<TensorRow>(folder, text, expect);
      REQUIRE(rows.size() == 1);
      CHECK(FieldsOf(rows[0]).text() == FieldsOf(row).text());
    }
  }

  TEST_CASE("how a number is written") {
    struct Case {
      double value;
      unsigned traits;
      const char* text;
    };
    const std::vector<Case> cases = {
        {1024, 0, "1024.0"},
        {1.0 / 3, 0, "0.333333333"},
        {NAN, 0, "nan"},
        {NAN, kEmptyNan, ""},
        {INFINITY, kEmptyNan, "inf"},
        {1024, kExact, "1024.0"},
        {1.0 / 3, kExact, "0.3333333333333333"},
        {NAN, kExact, ""},
        {NAN, kExact | kWordNan, "nan"},
        {1.0 / 3, kExact | kWordNan, "0.3333333333333333"},
        {1024, kPlain, "1024"},
        {1.0 / 3, kPlain, "0.333333333"},
        {NAN, kPlain | kEmptyNan, ""},
        {1024, kPlain | kExact, "1024"},
        {1.0 / 3, kPlain | kExact, "0.3333333333333333"},
        {NAN, kPlain | kExact, "nan"},
    };
    for (const Case& c : cases) {
      CsvRow fields;
      AppendField(fields, c.value, c.traits);
      CHECK(fields.text() == c.text);
    }
    CsvRow fields;
    AppendField(fields, std::optional<double>(), kPlain);
    AppendField(fields, std::optional<double>(12), kPlain);
    AppendField(fields, std::optional<double>(NAN),
                kEmptyNan);  // there is one, and it is no number
    CHECK(fields.text() == ",12,nan");
  }

  TEST_CASE("what a reader expects of a file") {
    const TempFolder folder;
    const auto read = [&](const std::string& text, Expect expect) {
      return Read<EvaluationRow>(folder, text, expect);
    };
    const auto refusal = [&](const std::string& text, Expect expect) {
      try {
        read(text, expect);
      } catch (const ada::DataError& error) {
        return std::string(error.what()).substr(folder.path().size() + 1);
      }
      return std::string("none");
    };
    const std::string all = Header<EvaluationRow>() + "\n";
    const std::string keys = "top1,new,loss,step,split\n";
    CHECK(refusal(all + "1,1,test,10,1.5,0.5,1\n", Expect::kAll) == "none");
    CHECK(refusal(keys + "1,x,2,3,test\n", Expect::kAll) ==
          "a.csv:1: no column 'epoch'; the file has top1,new,loss,step,split");
    CHECK(refusal(all + "1,1,test,,1.5,0.5,1\n", Expect::kAll) ==
          "a.csv:2: column images is '', expected an integer");
    CHECK(refusal(all + "1,1,test,,1.5,0.5,1\n", Expect::kKeys) == "none");
    CHECK(refusal("step,loss\n", Expect::kKeys) ==
          "a.csv:1: no column 'split'; the file has step,loss");
    CHECK(refusal(keys + "1,x,many,3,test\n", Expect::kKeys) ==
          "a.csv:2: column loss is 'many', expected a number");
    const std::vector<EvaluationRow> some = read(keys + "0.25,x,,3,test\n", Expect::kKeys);
    REQUIRE(some.size() == 1);
    CHECK(some[0].step == 3);
    CHECK(some[0].epoch == 0);
    CHECK(some[0].split == "test");
    CHECK(some[0].top1 == 0.25);
    CHECK(std::isnan(some[0].loss));
    const std::vector<EvaluationRow> none = read("step,loss\n2,many\nx,1\n", Expect::kNone);
    REQUIRE(none.size() == 2);
    CHECK(none[0].step == 2);
    CHECK(std::isnan(none[0].loss));
    CHECK(none[1].step == 0);
    CHECK(none[1].loss == 1);
  }
}
