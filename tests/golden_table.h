// Reads the recorded CSV tables of tests/golden: `# ` comment lines, a header, rows of named
// fields. For tests only; quotes are understood, line breaks within a field are not.
#pragma once
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ada::testing {

using GoldenRow = std::map<std::string, std::string>;
struct GoldenTable {
  std::vector<std::string> comments;  // without "# "
  std::vector<GoldenRow> rows;
};

inline std::vector<std::string> SplitCsvLine(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else if (c != '\r') {
      fields.back() += c;
    }
  }
  return fields;
}

// Throws where the file is missing or a row is too short.
inline GoldenTable ReadTable(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("missing golden file " + path);
  GoldenTable table;
  std::vector<std::string> header;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("# ", 0) == 0) {
      table.comments.push_back(line.substr(2));
      continue;
    }
    const std::vector<std::string> fields = SplitCsvLine(line);
    if (header.empty()) {
      header = fields;
      continue;
    }
    if (fields.size() != header.size()) throw std::runtime_error(path + ": bad row: " + line);
    GoldenRow& row = table.rows.emplace_back();
    for (std::size_t i = 0; i < header.size(); ++i) row[header[i]] = fields[i];
  }
  return table;
}
// `path` is relative to tests/golden.
inline GoldenTable ReadGolden(const std::string& path) {
  return ReadTable(std::string(ADA_SOURCE_DIR) + "/tests/golden/" + path);
}

inline double Number(const GoldenRow& row, const std::string& column) {
  const std::string& text = row.at(column);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw std::runtime_error("no number: " + column + " " + text);
  return value;
}

// The words of a field that holds a list.
inline std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace ada::testing
