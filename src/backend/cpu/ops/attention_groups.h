// The heads of an attention and the queries of each that are in a worker's memory together, with
// what both passes do to them: loading, rounding once more, looking for scales.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/attention_head.h"
#include "backend/cpu/ops/attention_tensors.h"
#include "backend/cpu/ops/head_operands.h"

namespace ada::backend::cpu {

// Blocks of queries of one head that are in memory together: all where operands are rounded by
// whole matrices, else one.
using QueryGroup = std::vector<QueryBlock>;

// Keeps references. Workers call it at the same time, each with its own memory.
class HeadGroups {
 public:
  HeadGroups(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes)
      : context_(context),
        spec_(spec),
        sizes_(sizes),
        products_(context, spec, sizes),
        operands_(context, spec, sizes),
        tensors_(context, spec, sizes) {}
  const HeadMatmuls& products() const { return products_; }
  HeadOperands& operands() { return operands_; }
  const AttentionTensors& tensors() const { return tensors_; }

  // A worker's memory: that of accumulators' sums comes after that of the head.
  std::size_t bytes() const {
    std::size_t bytes =
        HeadBytes() + JudgedBytes() + (products_.sums().any() ? products_.sums().bytes() : 0);
    for (const HeadSums& judged : products_.judged()) bytes += judged.bytes();
    return bytes;
  }
  HeadMemory MemoryOf(int worker) const;

  // body(image, head of keys, worker) for each head of keys of the batch.
  template <class Body>
  void ForHeads(const Pass& pass, Body&& body) const {
    context_.pool.For(pass.rows * sizes_.kv_heads, [&](std::int64_t i, int worker) {
      body(i / sizes_.kv_heads, i % sizes_.kv_heads, worker);
    });
  }
  // The groups of the heads that read one head of keys, in their order.
  template <class Body>
  void ForGroups(std::int64_t image, std::int64_t kv_head, Body&& body) const {
    QueryGroup group;
    for (std::int64_t g = 0; g < sizes_.group(); ++g)
      for (std::int64_t i = 0; i < sizes_.blocks(); ++i) {
        group.push_back(BlockOf(sizes_, image, kv_head * sizes_.group() + g, i));
        if (sizes_.whole && i + 1 < sizes_.blocks()) continue;
        body(group);
        group.clear();
      }
  }
  // Queries of a group before a block, and of all of it.
  static std::int64_t Before(const QueryGroup& group, const QueryBlock& block) {
    return block.first - group.front().first;
  }
  static std::int64_t RowsOf(const QueryGroup& group) {
    return Before(group, group.back()) + group.back().rows;
  }
  HeadMemory At(const HeadMemory& m, const QueryGroup& group, const QueryBlock& block) const {
    return m.From(sizes_, Before(group, block), block.width);
  }

  // Keys as stored, and as scores are made of them.
  void LoadKeys(const Pass& pass, std::int64_t image, std::int64_t kv_head, const HeadMemory& m,
                bool counts);
  // The same, not counted again, and values as dp is made of them.
  void LoadForBackward(const Pass& pass, std::int64_t image, std::int64_t kv_head,
                       const HeadMemory& m, bool counts);

  // Rounds a matrix once more if its operand says so: gives `values`, or `to`, which then has them
  // rounded. Formats judge it before. counts: false where it was counted before.
  float* KeysRounded(const Pass& pass, AttentionOperand operand, std::int64_t image,
                     std::int64_t kv_head, float* values, float* to, const HeadMemory& m,
                     bool counts);
  float* QueriesRounded(const Pass& pass, AttentionOperand operand, const QueryGroup& group,
                        float* values, float* to, const HeadMemory& m, bool counts);
  float* ScoresRounded(const Pass& pass, AttentionOperand operand, const QueryGroup& group,
                       float* values, float* to, const HeadMemory& m);

  // Sets the scales of whole tensors of queries, keys, values or dy that ask for it.
  void FindScales(const Pass& pass, std::initializer_list<AttentionOperand> operands);
  // The largest magnitude, in all processes, of what body(group, memory) gives the bits of.
  enum class Loads : std::uint8_t { kKeys, kKeysAndValues };
  template <class Body>
  float LargestOfHeads(const Pass& pass, Loads loads, Body&& body) {
    std::vector<std::uint32_t> parts(static_cast<std::size_t>(pass.rows * sizes_.kv_heads));
    ForHeads(pass, [&](std::int64_t image, std::int64_t kv_head, int worker) {
      const HeadMemory m = MemoryOf(worker);
      if (loads == Loads::kKeysAndValues)
        LoadForBackward(pass, image, kv_head, m, /*counts=*/false);
      else
        LoadKeys(pass, image, kv_head, m, /*counts=*/false);
      std::uint32_t& most = parts[static_cast<std::size_t>(image * sizes_.kv_heads + kv_head)];
      ForGroups(image, kv_head,
                [&](const QueryGroup& group) { most = std::max(most, body(group, m)); });
    });
    return LargestOfProcesses(pass, parts);
  }
  std::uint32_t LargestIn(const QueryGroup& group, float* scores) const {
    return context_.kernels.largest_stored({scores, Storage::kF32},
                                           RowsOf(group) * group.front().width);
  }

 private:
  std::size_t HeadBytes() const {
    return WholeLines(static_cast<std::size_t>(HeadMemory::Values(sizes_)) * sizeof(float));
  }
  std::size_t JudgedBytes() const {
    return WholeLines(products_.judged().size() * sizeof(SumMemory));
  }
  float* LinesOf(const HeadMemory& m, AttentionOperand operand) const {
    return m.lines + static_cast<std::int64_t>(IndexOf(operand)) * HeadMemory::MostLines(sizes_) *
                         sizes_.line_blocks;
  }
  void PointToLines(const HeadMemory& m, SumMemory& sums) const;
  float* Rounded(const Pass& pass, AttentionOperand operand, std::int64_t image, std::int64_t head,
                 const HeadMatrix& of, float* values, float* to, const HeadMemory& m, bool counts);
  float LargestOfProcesses(const Pass& pass, const std::vector<std::uint32_t>& parts) const;
  float LargestStored(const Pass& pass, const Tensor& tensor, std::int64_t first,
                      std::int64_t channels) const;

  Context context_;
  const AttentionSpec& spec_;
  const AttentionSizes& sizes_;
  HeadMatmuls products_;
  HeadOperands operands_;
  AttentionTensors tensors_;
};

}  // namespace ada::backend::cpu
