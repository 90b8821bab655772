// Reads and compares the folders that runs leave behind: CSV tables, weights, summaries.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden_table.h"

// What a failed comparison of lists of texts prints.
template <>
struct doctest::StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
    return ("{" + all + "}").c_str();
  }
};

namespace ada::testing {

using Table = std::vector<GoldenRow>;

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("missing file " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A CSV with a header; fields without line breaks.
inline Table ReadCsv(const std::string& path) {
  std::istringstream text(ReadBytes(path));
  Table table;
  std::vector<std::string> header;
  for (std::string line; std::getline(text, line);) {
    const std::vector<std::string> fields = SplitCsvLine(line);
    if (header.empty()) {
      header = fields;
      continue;
    }
    if (fields.size() != header.size()) throw std::runtime_error(path + ": bad row: " + line);
    GoldenRow& row = table.emplace_back();
    for (std::size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
  }
  return table;
}

inline Table RowsWhere(const Table& table, const std::string& column, const std::string& value) {
  Table found;
  for (const GoldenRow& row : table)
    if (row.at(column) == value) found.push_back(row);
  return found;
}

// How many rows a CSV holds so far; 0 where it is missing. For a file that is being written.
inline std::int64_t RowCount(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::max<std::int64_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n') - 1,
      0);
}

// "step-00000012.json" and so on, sorted; without those that end otherwise.
inline std::vector<std::string> Checkpoints(const std::string& run, const std::string& ending) {
  std::vector<std::string> names;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints", missing)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(ending)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string NewestCheckpoint(const std::string& run,
                                    const std::string& ending = ".safetensors") {
  const std::vector<std::string> names = Checkpoints(run, ending);
  if (names.empty()) throw std::runtime_error("no checkpoint in " + run);
  return run + "/checkpoints/" + names.back();
}

inline std::set<std::string> CsvNames(const std::string& run) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".csv") && name != "timing.csv") names.insert(name);
  }
  return names;
}

// summary.json without times, places and machines.
inline nlohmann::json Summary(const std::string& run) {
  nlohmann::json summary = nlohmann::json::parse(ReadBytes(run + "/summary.json"));
  for (const char* key : {"name", "seconds", "images_per_second", "host", "versions", "folder"})
    summary.erase(key);
  return summary;
}

// Whether a run had other ends before its last one: it keeps the evaluations made there.
enum class Ends { kOne, kSeveral };

// Whether the rows of `evaluations` are among those of `more`, in their order.
inline bool HoldsEvaluations(const std::string& more, const std::string& evaluations) {
  const Table all = ReadCsv(more + "/evaluation.csv");
  auto row = all.begin();
  for (const GoldenRow& wanted : ReadCsv(evaluations + "/evaluation.csv")) {
    row = std::find(row, all.end(), wanted);
    if (row == all.end()) return false;
  }
  return true;
}

// What differs between two runs that should be equal, in words; empty: nothing. Every CSV but
// timing.csv, dumps and the newest weights with all training state, byte for byte; the summaries.
// `ends`: of run b.
inline std::vector<std::string> Differences(const std::string& a, const std::string& b,
                                            Ends ends = Ends::kOne) {
  std::vector<std::string> found;
  if (CsvNames(a) != CsvNames(b)) found.push_back("names of CSV files");
  for (const std::string& name : CsvNames(a)) {
    if (!CsvNames(b).contains(name)) continue;
    if (ends == Ends::kSeveral && name == "evaluation.csv" && HoldsEvaluations(b, a)) continue;
    if (ReadBytes(a + "/" + name) != ReadBytes(b + "/" + name)) found.push_back(name);
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(a + "/dump", none)) {
    const std::string name = "dump/" + entry.path().filename().string();
    if (ReadBytes(a + "/" + name) != ReadBytes(b + "/" + name)) found.push_back(name);
  }
  const std::filesystem::path last_a = NewestCheckpoint(a), last_b = NewestCheckpoint(b);
  if (last_a.filename() != last_b.filename())
    found.push_back(last_a.string() + " and " + last_b.string());
  else if (ReadBytes(last_a) != ReadBytes(last_b))
    found.push_back(last_a.filename().string());
  nlohmann::json summary_a = Summary(a), summary_b = Summary(b);
  if (ends == Ends::kSeveral) {  // the best of them may be one that run a has not made
    for (nlohmann::json* summary : {&summary_a, &summary_b})
      for (nlohmann::json& split : summary->at("evaluation")) split.erase("best");
  }
  if (summary_a != summary_b) found.push_back("summary.json");
  return found;
}

}  // namespace ada::testing
