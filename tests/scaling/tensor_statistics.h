// Statistics of recorded tensors in double, straight from their definitions: what a backend would
// observe. For tests only.
#pragma once
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "scaling/rules/rules.h"

namespace ada::testing {

struct RecordedTensor {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
  bool fp16 = false;
};

inline RecordedTensor ReadTensor(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry* entry = file.Find(name);
  if (entry == nullptr) throw std::runtime_error("missing tensor " + name);
  return {file.ReadF32(name), entry->shape, entry->dtype == DType::kF16};
}

inline TensorMoments MomentsOf(const RecordedTensor& x) {
  TensorMoments moments;
  const auto count = static_cast<double>(x.values.size());
  double smallest = std::numeric_limits<double>::infinity();
  moments.min = moments.max = x.values[0];
  for (const float value : x.values) {
    moments.mean += value / count;
    moments.mean_square += static_cast<double>(value) * value / count;
    moments.min = std::fmin(moments.min, value);
    moments.max = std::fmax(moments.max, value);
    if (value != 0) smallest = std::fmin(smallest, std::fabs(value));
  }
  moments.min_abs = std::isinf(smallest) ? 0 : static_cast<float>(smallest);
  return moments;
}

// Mean and population deviation of ln|x| over the non-zero values; 0 where there is none.
inline void ObserveLogs(const RecordedTensor& x, scaling::Observation& seen) {
  std::vector<double> logs;
  for (const float value : x.values) {
    if (value != 0) logs.push_back(std::log(std::fabs(static_cast<double>(value))));
  }
  double sum = 0, squares = 0;
  for (const double log : logs) sum += log;
  const double count = logs.empty() ? 1 : static_cast<double>(logs.size());
  for (const double log : logs) squares += (log - sum / count) * (log - sum / count);
  seen.log_mean = sum / count;
  seen.log_std = std::sqrt(squares / count);
}

// Every product |dy_ik| * |w_kj| of non-zero operands: dy [n, k, ...], w [k, ...].
inline void ObserveProducts(const RecordedTensor& dy, const RecordedTensor& w,
                            scaling::Observation& seen) {
  const std::size_t outputs = static_cast<std::size_t>(w.shape[0]),
                    images = static_cast<std::size_t>(dy.shape[0]),
                    pixels = dy.values.size() / (images * outputs), row = w.values.size() / outputs;
  for (std::size_t i = 0; i < dy.values.size(); ++i) {
    const std::size_t k = i / pixels % outputs;
    for (std::size_t j = k * row; j < (k + 1) * row; ++j) {
      const double product = std::fabs(static_cast<double>(dy.values[i]) * w.values[j]);
      if (dy.values[i] == 0 || w.values[j] == 0) continue;
      if (seen.product_max == 0 || product < seen.product_min) seen.product_min = product;
      if (product > seen.product_max) seen.product_max = product;
    }
  }
}

}  // namespace ada::testing
