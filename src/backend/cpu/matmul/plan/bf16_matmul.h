// Products of bf16 matrices, as oneDNN primitives of one thread.
#pragma once
#include <cstdint>
#include <memory>

namespace ada::backend::cpu {

// c [rows, columns] = a [rows, terms] b [terms, columns] of bf16 values with sums in fp32. Rows lie
// a_row, b_row and c_row values apart; transposed: b lies as [columns, terms]. Any thread may call
// Run.
class Bf16Matmul {
 public:
  struct Shape {
    std::int64_t rows = 0, columns = 0, terms = 0;
    std::int64_t a_row = 0, b_row = 0, c_row = 0;
    bool transposed = false;
  };
  virtual ~Bf16Matmul() = default;
  static std::unique_ptr<Bf16Matmul> Make(const Shape& shape);
  virtual void Run(const std::uint16_t* a, const std::uint16_t* b, float* c) const = 0;
};

}  // namespace ada::backend::cpu
