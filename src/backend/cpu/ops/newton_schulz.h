// Newton-Schulz's iteration, which makes Muon's steps orthogonal.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/bf16_matmul.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {

// What the iteration keeps from matrix to matrix; memory grows to the largest.
struct NewtonSchulzMemory {
  // Matrices as they are rounded, in fp32 or as codes of bf16, and the sums of a product in fp32.
  std::vector<std::byte> x, gram, polynomial;
  std::vector<float> sums, transposed;
  std::vector<float> reference;                        // the result in fp32, where it is counted
  std::vector<BlockStats> blocks;                      // of rows
  std::vector<std::int16_t> a_exponents, b_exponents;  // of factors that an accumulator adds
  // Products in bf16 by their rows, columns, terms, and whether the second factor is transposed.
  std::map<std::array<std::int64_t, 4>, std::unique_ptr<Bf16Matmul>> bf16_matmuls;
};

// The orthogonal factor of a matrix [rows, columns], approximately: `steps` of the iteration
// X = a X + (b A + c A A) X, A = X X^T, from X / |X|; each product is rounded to the rule's
// ns_format, its sums are fp32 or as its ns_sums makes them. In place. stats: null, or what was
// lost; its mse and sqnr_db are not set.
void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory,
                  NewtonSchulzStats* stats = nullptr);

}  // namespace ada::backend::cpu
