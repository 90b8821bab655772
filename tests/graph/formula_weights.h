// Recordings of whole steps (tests/golden/whole): the formula that fills weights and images, and
// the recorded properties of each gradient.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "golden_table.h"
#include "graph/network/parameters.h"
#include "io/tensor_files/safetensors.h"

namespace ada::graph::test {

using testing::GoldenRow;
using testing::Number;

// Element i of tensor p under a seed: in [-1, 1).
inline double FormulaValue(std::size_t i, std::uint32_t p, std::uint32_t seed) {
  std::uint32_t h = static_cast<std::uint32_t>(i) * 2654435761U + p * 40503U + seed * 2246822519U;
  h ^= h >> 16, h *= 0x85EBCA6BU;
  h ^= h >> 13, h *= 0xC2B2AE35U;
  h ^= h >> 16;
  return h / 2147483648.0 - 1;
}

// The name here of a recorded parameter: "extractor.conv1_1.W" is conv1_1.weight.
inline std::string NameOf(std::string name) {
  const std::string prefix = "extractor.";
  if (name.starts_with(prefix)) name.erase(0, prefix.size());
  const std::size_t dot = name.rfind('.');
  const std::string kind = name.substr(dot + 1);
  const bool bias = kind == "b" || kind == "beta";
  return name.substr(0, dot) + (bias ? ".bias" : ".weight");
}

inline std::vector<float> FormulaParameter(const GoldenRow& row, const Parameter& parameter,
                                           std::uint32_t seed) {
  const auto p = static_cast<std::uint32_t>(Number(row, "p"));
  const std::string& name = row.at("parameter");
  double fan = 1;
  for (std::size_t i = 1; i < parameter.dims.size(); ++i)
    fan *= static_cast<double>(parameter.dims[i]);
  std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double f = FormulaValue(i, p, seed);
    values[i] = static_cast<float>(parameter.dims.size() > 1  ? f * std::sqrt(6 / fan)
                                   : name.ends_with(".gamma") ? 1 + 0.2 * f
                                   : name.ends_with(".scale") ? 20 + 2 * f
                                                              : 0.1 * f);
  }
  return values;
}

// Checks a gradient: its sums to `tolerance` of the sum of magnitudes, its ends to that share of
// the largest value. One below 1e-9 an element is zero but for rounding.
inline void CheckGradient(const GoldenRow& row, const Parameter& parameter, std::uint32_t seed,
                          double tolerance) {
  CAPTURE(parameter.name);
  const auto p = static_cast<std::uint32_t>(Number(row, "p"));
  const float* g = parameter.gradient.f32();
  const auto count = static_cast<std::size_t>(parameter.numel());
  double sum = 0, projection = 0, largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(g[i]);
    sum += std::fabs(value), largest = std::max(largest, std::fabs(value));
    projection += value * FormulaValue(i, p, seed + 1);
  }
  const double recorded = Number(row, "grad_abs_sum");
  if (recorded <= 1e-9 * static_cast<double>(count)) return;
  CHECK(std::fabs(sum - recorded) <= tolerance * recorded);
  CHECK(std::fabs(projection - Number(row, "grad_projection")) <= tolerance * recorded);
  CHECK(std::fabs(static_cast<double>(g[0]) - Number(row, "grad_first")) <= tolerance * largest);
  CHECK(std::fabs(static_cast<double>(g[count - 1]) - Number(row, "grad_last")) <=
        tolerance * largest);
}

// Values in the order of their bytes, whatever their type of float, or whole numbers.
inline std::vector<double> ValuesOf(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::byte> bytes = file.Bytes(name);
  const auto as = [&]<class T>(T) {
    std::vector<T> typed(bytes.size() / sizeof(T));
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<std::byte*>(typed.data()));
    return std::vector<double>(typed.begin(), typed.end());
  };
  switch (file.Find(name)->dtype) {
    case DType::kF64:
      return as(double{});
    case DType::kI32:
      return as(std::int32_t{});
    default:
      return as(float{});
  }
}

}  // namespace ada::graph::test
