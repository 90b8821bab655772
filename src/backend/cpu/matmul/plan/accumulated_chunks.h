// Computes the products of a layer whose sums an accumulator makes (MatmulSpec::sums); those whose
// sums are fp32 are left to another way of computing chunks. Sums that are judged are made in
// addition, and only counted.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/batch_operands.h"
#include "backend/cpu/matmul/pack/weight_copies.h"
#include "backend/cpu/matmul/plan/accumulated_window.h"

namespace ada::backend::cpu {

// Sums are made row by row against panels of sixteen outputs; dw is made slice by slice (some of
// its rows with one panel of its columns), each over all images, since its sums run through them.
class AccumulatedChunks final : public ChunkMatmul {
 public:
  // spec: the layer's own, whose operands say what codes are. most, offset: as of KernelChunks.
  // others: for the products with fp32 sums. Keeps references.
  AccumulatedChunks(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
                    WeightCopies& weights, const BatchOperands& operands, MatmulRounding& rounding,
                    int most, std::size_t offset, std::unique_ptr<ChunkMatmul> others);
  ~AccumulatedChunks() override;
  AccumulatedChunks(const AccumulatedChunks&) = delete;
  void Prepare(std::int64_t images) override;
  void Refresh() override;
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  int slices() const override;
  bool whole_batch() const override { return Makes(scaling::Product::kDw); }
  void WeightSlice(int slice, const Chunk& batch, const TensorSpan& x, const TensorSpan& dy,
                   float* partial) override;
  bool few_terms_are_inexact() const override;
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;
  int judged_slices(const Pass& pass) const override;
  void JudgeSlice(int slice, const Chunk& batch, const TensorSpan& x,
                  const TensorSpan& dy) override;
  void FinishForward(const Pass& pass) override;
  void FinishBackward(const Pass& pass) override;

 private:
  // One product with the weights: its rule, its operands, and the weights in panels.
  struct Rows {
    scaling::Product product;
    Toward toward;
    AccumulatedWindow window;
    CodesOf of_batch, of_weights;
    WeightPanels panels;
    // Where blocks with scales of their own begin in a sum, and its end; empty: there are none.
    std::vector<std::int64_t> blocks;
  };
  Rows RowsOf(scaling::Product product, Toward toward, Operand batch, Operand weights) const;
  bool Makes(scaling::Product product) const {
    return spec_.sums[scaling::IndexOf(product)].rule.has_value();
  }
  bool Counts(scaling::Product product, const Pass& pass) const {
    return pass.count && spec_.sums[scaling::IndexOf(product)].counts != nullptr;
  }
  const std::vector<JudgedSums>& Judged(scaling::Product product) const {
    return spec_.sums[scaling::IndexOf(product)].judged;
  }
  // Whether codes of the product are needed at all.
  bool Takes(scaling::Product product) const { return Makes(product) || !Judged(product).empty(); }
  // Counts by chunk or slice; rule 0 is the product's own, those that are judged follow.
  scaling::AccumulatorCounts& CountsAt(scaling::Product product, std::size_t rule,
                                       std::int64_t part) {
    return counts_[scaling::IndexOf(product)]
                  [rule * parts_[scaling::IndexOf(product)] + static_cast<std::size_t>(part)];
  }
  std::size_t RowBytes(const Rows& rows) const;
  std::size_t SliceBytes() const;
  // Where output i of an image of the product lies in the result: those of a linear layer's dx are
  // features in PyTorch's order.
  std::int64_t PlaceOfOutput(const Rows& rows, std::int64_t i) const;
  // Sums of all pixels of the chunk, [images, pixels, channels] of the result, in scratch memory.
  // counts: null, or where what they lost is added.
  float* RowSums(const Rows& rows, const scaling::Accumulator& rule,
                 scaling::AccumulatorCounts* counts, const Chunk& chunk, const TensorSpan& batch);
  void JudgeRows(const Rows& rows, const Chunk& chunk, const TensorSpan& batch);
  std::int64_t weight_slices() const;
  // partial: null where sums are counted alone.
  void SumSlice(const scaling::Accumulator& rule, std::int64_t slice,
                scaling::AccumulatorCounts* counts, const Chunk& batch, const TensorSpan& x,
                const TensorSpan& dy, float* partial);
  void Finish(scaling::Product product, const Pass& pass);
  void Total(scaling::Product product, std::size_t rule, scaling::AccumulatorCounts& to);

  Context context_;
  MatmulSpec spec_;
  AccumulatedWindow window_;
  bool transposed_;
  WeightCopies& weights_;
  const BatchOperands& operands_;
  MatmulRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  std::unique_ptr<ChunkMatmul> others_;
  std::optional<Rows> forward_, data_;
  CodesOf dw_x_, dw_dy_;
  // By product, then by rule and chunk or slice: added up in that order.
  std::array<std::vector<scaling::AccumulatorCounts>, scaling::kProducts> counts_;
  std::array<std::size_t, scaling::kProducts> parts_{};  // chunks or slices
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu
