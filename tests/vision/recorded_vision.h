// A table of ChainerCV's recordings and its tensors.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden_table.h"
#include "golden_vision.h"
#include "io/tensor_files/safetensors.h"
#include "vision/box.h"
#include "vision/coder.h"

namespace ada::vision::test {

using ada::testing::GoldenRow;
using ada::testing::Number;

struct RecordedCases {
  RecordedCases(const std::string& folder, const std::string& table_name,
                const std::string& tensors_name)
      : table(ada::testing::ReadTable(folder + "/" + table_name + ".csv")),
        file(SafetensorsFile::Open(folder + "/" + tensors_name + ".safetensors")) {}
  RecordedCases(const std::string& folder, const std::string& name)
      : RecordedCases(folder, name, name) {}

  bool Has(const std::string& tensor) const { return file.Find(tensor) != nullptr; }
  // The elements of a tensor whose type is T's.
  template <class T>
  std::vector<T> Values(const std::string& tensor) const {
    const std::vector<std::byte> bytes = file.Bytes(tensor);
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<Box> Boxes(const std::string& tensor) const {
    const std::vector<float> v = Values<float>(tensor);
    std::vector<Box> boxes;
    for (std::size_t i = 0; i + 3 < v.size(); i += 4)
      boxes.push_back({v[i], v[i + 1], v[i + 2], v[i + 3]});
    return boxes;
  }
  std::vector<LabeledBox> LabeledBoxes(const std::string& name) const {
    const std::vector<Box> boxes = Boxes(name + ".bbox");
    const std::vector<std::int32_t> labels = Values<std::int32_t>(name + ".label");
    std::vector<LabeledBox> labeled;
    for (std::size_t i = 0; i < boxes.size(); ++i) labeled.push_back({boxes[i], labels[i]});
    return labeled;
  }

  ada::testing::GoldenTable table;
  SafetensorsFile file;
};

// The largest difference relative to the largest recorded value; infinite where the lengths differ
// or one alone is not finite (infinities must be equal).
inline double Difference(const std::vector<float>& ours, const std::vector<float>& recorded) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (ours.size() != recorded.size()) return kInfinite;
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!std::isfinite(recorded[i]) || !std::isfinite(ours[i])) {
      const bool both_nan = std::isnan(ours[i]) && std::isnan(recorded[i]);
      if (!both_nan && ours[i] != recorded[i]) return kInfinite;
      continue;
    }
    largest = std::max(largest, std::fabs(static_cast<double>(recorded[i])));
    difference = std::max(difference, std::fabs(static_cast<double>(ours[i]) - recorded[i]));
  }
  return largest > 0 ? difference / largest : difference;
}

// The numbers of "1;2.5;3".
inline std::vector<double> NumbersBetween(const std::string& text, char between) {
  std::istringstream stream(text);
  std::vector<double> numbers;
  for (std::string word; std::getline(stream, word, between);) numbers.push_back(std::stod(word));
  return numbers;
}

// The coder of a row of coders.csv.
inline DefaultBoxSpec SpecOf(const GoldenRow& row) {
  DefaultBoxSpec spec;
  spec.input = std::stoi(row.at("insize"));
  for (const double cells : NumbersBetween(row.at("grids"), ';'))
    spec.grids.push_back(static_cast<int>(cells));
  spec.steps = NumbersBetween(row.at("steps"), ';');
  spec.sizes = NumbersBetween(row.at("sizes"), ';');
  std::istringstream aspects(row.at("aspect_ratios"));
  for (std::string one; std::getline(aspects, one, ';');)
    spec.aspects.push_back(NumbersBetween(one, '/'));
  spec.center_variance = Number(row, "variance0");
  spec.size_variance = Number(row, "variance1");
  return spec;
}

// The specification of a coder by its name in `folder`/coders.csv.
inline DefaultBoxSpec RecordedSpec(const std::string& folder, const std::string& coder) {
  for (const GoldenRow& row : ada::testing::ReadTable(folder + "/coders.csv").rows) {
    if (row.at("coder") == coder) return SpecOf(row);
  }
  throw std::runtime_error("no coder " + coder + " in " + folder);
}

}  // namespace ada::vision::test
