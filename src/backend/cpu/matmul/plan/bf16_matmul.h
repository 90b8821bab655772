// Products of bf16 matrices, as oneDNN primitives of one thread.
#pragma once
#include <cstdint>
#include <memory>

namespace ada::backend::cpu {

// c [rows, columns] = a [rows, terms] b [terms, columns] of bf16 values with sums in fp32; rows of
// a lie a_row values apart, the others follow each other. Any thread may call Run.
class Bf16Matmul {
 public:
  virtual ~Bf16Matmul() = default;
  static std::unique_ptr<Bf16Matmul> Make(std::int64_t rows, std::int64_t columns,
                                          std::int64_t terms, std::int64_t a_row);
  virtual void Run(const std::uint16_t* a, const std::uint16_t* b, float* c) const = 0;
};

}  // namespace ada::backend::cpu
