// Recordings of single operations of vision, whose tensors are NCHW, beside ops, whose are NHWC.
#pragma once
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "backend/op_bench.h"
#include "golden_table.h"
#include "golden_vision.h"
#include "io/tensor_files/safetensors.h"

namespace ada::backend::test {

// One case of a recording: its row of the table and its tensors by their last names.
struct VisionCase {
  const ada::testing::GoldenRow& row;
  const SafetensorsFile& file;
  std::string name;

  double Number(const std::string& column) const { return ada::testing::Number(row, column); }
  bool Has(const std::string& what) const { return file.Find(name + "." + what) != nullptr; }
  std::vector<std::int64_t> Dims(const std::string& what) const {
    return file.Find(name + "." + what)->shape;
  }
  Values Read(const std::string& what) const { return file.ReadF32(name + "." + what); }
  std::vector<std::int32_t> Integers(const std::string& what) const {
    const std::vector<std::byte> bytes = file.Bytes(name + "." + what);
    std::vector<std::int32_t> values(bytes.size() / sizeof(std::int32_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // The shape of a tensor [n, c, h, w] (or [n, c]).
  Shape ShapeOf(const std::string& what) const {
    const std::vector<std::int64_t> d = Dims(what);
    if (d.size() == 2) return {d[0], 1, 1, d[1]};
    return {d[0], d[2], d[3], d[1]};
  }
  Values Nhwc(const std::string& what) const { return ToNhwc(Read(what), ShapeOf(what)); }
  template <class T>
  static std::vector<T> ToNhwc(const std::vector<T>& from, const Shape& shape) {
    std::vector<T> to(from.size());
    const std::int64_t pixels = shape.h * shape.w;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const std::int64_t c = i % shape.c, p = i / shape.c % pixels, n = i / shape.per_image();
      to[static_cast<std::size_t>(i)] =
          from[static_cast<std::size_t>((n * shape.c + c) * pixels + p)];
    }
    return to;
  }
};

// body(case) for all rows of `name`.csv in the folders of `part`.
inline void ForRecorded(const std::string& part, const std::string& name,
                        const std::function<void(const VisionCase&)>& body) {
  for (const std::string& folder : ada::testing::VisionFolders(part)) {
    const auto table = ada::testing::ReadTable(folder + "/" + name + ".csv");
    const SafetensorsFile file = SafetensorsFile::Open(folder + "/" + name + ".safetensors");
    REQUIRE(!table.rows.empty());
    for (const ada::testing::GoldenRow& row : table.rows) {
      CAPTURE(folder);
      CAPTURE(row.at("case"));
      body({row, file, row.at("case")});
    }
  }
}

// Within `bound` of the largest magnitude.
inline void CheckNear(const char* what, const Values& got, const Values& want, double bound) {
  CAPTURE(what);
  REQUIRE(got.size() == want.size());
  double largest = 1e-30, worst = 0;
  for (const float v : want) largest = std::max(largest, std::fabs(static_cast<double>(v)));
  for (std::size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  CHECK(worst <= bound * largest);
}

}  // namespace ada::backend::test
