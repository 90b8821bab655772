// The products of attention as calls of SequenceKernels::matrix: which operand lies how, and which
// of its dimensions are padded. The op that calls them is attention_op.cpp.
#include "backend/cpu/ops/attention_head.h"

namespace ada::backend::cpu {
namespace {

std::int64_t PositionsOf(const Tensor& tensor) { return tensor.shape.h * tensor.shape.w; }

HeadSums::Sizes SumSizes(const AttentionSizes& sizes) {
  const std::int64_t keys = AttentionSizes::Padded(sizes.keys);
  return {.a = AttentionSizes::kRows * std::max(keys, sizes.step()),
          .b = keys * sizes.step(),
          .block_rows = AttentionSizes::kRows,
          .keys = sizes.keys,
          .columns = sizes.step()};
}

}  // namespace

// Under a fused spec queries, keys and values are channels of one tensor, and have its positions.
AttentionSizes::AttentionSizes(const AttentionSpec& spec)
    : heads(spec.heads),
      kv_heads(spec.kv_heads),
      width(spec.y.shape.c / spec.heads),
      queries(PositionsOf(spec.x[0])),
      keys(PositionsOf(spec.x[spec.fused() ? 0 : 1])),
      causal(spec.causal),
      whole(AnyRounds(spec.attention_operands) || !spec.judged_operands.empty()) {
  for (std::size_t i = 0; i < kAttentionOperands; ++i)
    if (const std::int64_t block = BlockOfLines(spec, static_cast<AttentionOperand>(i)); block > 0)
      line_blocks = std::max(line_blocks, (std::max({queries, keys, width}) + block - 1) / block);
}

QueryBlock BlockOf(const AttentionSizes& sizes, std::int64_t image, std::int64_t head,
                   std::int64_t index) {
  QueryBlock block;
  block.image = image, block.head = head, block.index = index;
  block.first = index * AttentionSizes::kRows;
  block.rows = std::min(AttentionSizes::kRows, sizes.queries - block.first);
  // Where there are more queries than keys, a causal block sees all keys at the most.
  block.seen = sizes.causal ? std::min(block.first + block.rows, sizes.keys) : sizes.keys;
  block.width = AttentionSizes::Padded(sizes.whole ? sizes.keys : block.seen);
  AttentionRows& rows = block.scores;
  rows.rows = block.rows, rows.step = rows.width = block.width, rows.keys = sizes.keys;
  rows.visible = sizes.causal ? block.first + 1 : sizes.keys;
  rows.causal = sizes.causal;
  return block;
}

std::int64_t HeadMemory::MostLines(const AttentionSizes& s) {
  return AttentionSizes::Padded(std::max({s.queries, s.keys, s.width}));
}

std::int64_t HeadMemory::WorkValues(const AttentionSizes& s) {
  return 4 * AttentionSizes::Padded(std::max(s.queries, s.keys) * std::max(s.width, s.keys));
}

std::int64_t HeadMemory::Values(const AttentionSizes& s) {
  const std::int64_t keys = AttentionSizes::Padded(s.keys), rows = s.rows();
  // In the order of the constructor below: k, v, dk, dv; kt, vt; q, dy, out; p, pr, dp.
  const std::int64_t values = 4 * keys * s.step() + 2 * s.step() * s.transposed_step() +
                              2 * rows * s.step() + AttentionSizes::kRows * s.step() +
                              3 * rows * keys;
  if (!s.whole) return values;
  return values + (keys + rows) * s.step() + WorkValues(s) +
         static_cast<std::int64_t>(kAttentionOperands) * MostLines(s) * s.line_blocks;
}

HeadMemory::HeadMemory(const AttentionSizes& s, float* memory) {
  const std::int64_t keys = AttentionSizes::Padded(s.keys), rows = s.rows();
  const auto take = [&memory](std::int64_t values) {
    float* part = memory;
    memory += values;
    return part;
  };
  k = take(keys * s.step()), v = take(keys * s.step());
  kt = take(s.step() * s.transposed_step()), vt = take(s.step() * s.transposed_step());
  dk = take(keys * s.step()), dv = take(keys * s.step());
  q = take(rows * s.step()), dy = take(rows * s.step());
  out = take(AttentionSizes::kRows * s.step());
  p = take(rows * keys), pr = take(rows * keys), dp = take(rows * keys);
  if (!s.whole) return;
  k_rounded = take(keys * s.step()), q_rounded = take(rows * s.step());
  work = take(WorkValues(s));
  lines = take(static_cast<std::int64_t>(kAttentionOperands) * MostLines(s) * s.line_blocks);
}

HeadMemory HeadMemory::From(const AttentionSizes& s, std::int64_t row, std::int64_t width) const {
  HeadMemory from = *this;
  from.q += row * s.step(), from.dy += row * s.step();
  from.p += row * width, from.pr += row * width, from.dp += row * width;
  return from;
}

void HeadMatmuls::TransposeKeys(const float* rows, float* to) const {
  const std::int64_t step = sizes_.transposed_step();
  sequence_.transpose(rows, sizes_.keys, sizes_.width, sizes_.step(), to, step);
  for (std::int64_t i = 0; i < sizes_.width; ++i)
    std::fill(to + i * step + sizes_.keys, to + (i + 1) * step, 0.0f);
}

HeadMatmuls::HeadMatmuls(const Context& context, const AttentionSpec& spec,
                         const AttentionSizes& sizes)
    : sequence_(SequenceKernelsOf(context.kernels)),
      sizes_(sizes),
      sums_(context, spec, SumSizes(sizes)) {
  std::size_t rules = 0;
  for (const MatmulSums& sums : spec.sums) rules = std::max(rules, sums.judged.size());
  for (std::size_t rule = 0; rule < rules; ++rule)
    judged_.emplace_back(context, spec, SumSizes(sizes), static_cast<int>(rule));
}

void HeadMatmuls::Multiply(scaling::LayerMatmul matmul, AttentionOperand a, AttentionOperand b,
                           const MatrixArgs& args, std::int64_t columns, const QueryBlock& block,
                           const HeadMemory& m) const {
  for (std::size_t i = 0; m.judged != nullptr && i < judged_.size(); ++i)
    judged_[i].Multiply(matmul, a, b, args, columns, block.first, m.judged[i]);
  if (sums_.Makes(matmul))
    sums_.Multiply(matmul, a, b, args, columns, block.first, m.sums);
  else
    sequence_.matrix(args);
}

MatrixArgs HeadMatmuls::TimesTransposed(const QueryBlock& block, const float* rows,
                                        const float* transposed, float* scores) const {
  MatrixArgs a;
  a.a = rows, a.a_row = sizes_.step(), a.a_term = 1;
  a.b = transposed, a.b_term = sizes_.transposed_step();
  a.c = scores, a.c_row = block.width;
  // Columns reach beyond the keys to a multiple of 16: kt is zero there, and the softmax then
  // writes zeros over what no query sees.
  a.rows = block.rows, a.columns = block.width, a.terms = sizes_.width;
  return a;
}

void HeadMatmuls::Probabilities(const QueryBlock& block, const HeadMemory& m) const {
  Multiply(scaling::LayerMatmul::kForward, AttentionOperand::kSQ, AttentionOperand::kSK,
           TimesTransposed(block, m.q, m.kt, m.p), block.seen, block, m);
  sequence_.probabilities(block.scores, static_cast<float>(sizes_.factor()), m.p);
}

void HeadMatmuls::ProbabilityGradient(const QueryBlock& block, const HeadMemory& m) const {
  Multiply(scaling::LayerMatmul::kDx, AttentionOperand::kDpDy, AttentionOperand::kDpV,
           TimesTransposed(block, m.dy, m.vt, m.dp), block.seen, block, m);
}

MatrixArgs HeadMatmuls::TimesRows(const QueryBlock& block, const float* scores, const float* rows,
                                  float* out) const {
  MatrixArgs a;
  a.a = scores, a.a_row = block.width, a.a_term = 1;
  a.b = rows, a.b_term = sizes_.step();
  a.c = out, a.c_row = sizes_.step();
  a.rows = block.rows, a.columns = sizes_.step(), a.terms = block.seen;
  return a;
}

void HeadMatmuls::Outputs(const QueryBlock& block, const float* p, const HeadMemory& m) const {
  Multiply(scaling::LayerMatmul::kForward, AttentionOperand::kYP, AttentionOperand::kYV,
           TimesRows(block, p, m.v, m.out), sizes_.width, block, m);
}

void HeadMatmuls::QueryGradient(const QueryBlock& block, const HeadMemory& m) const {
  Multiply(scaling::LayerMatmul::kDx, AttentionOperand::kDqDs, AttentionOperand::kDqK,
           TimesRows(block, m.dp, m.k, m.out), sizes_.width, block, m);
}

void HeadMatmuls::AddTransposed(const QueryBlock& block, AttentionOperand a_is, const float* scores,
                                AttentionOperand b_is, const float* rows, float* sums,
                                RunningSums SumMemory::*running, const HeadMemory& m) const {
  MatrixArgs a;
  // The steps of scores are exchanged, which is their transpose without a copy.
  a.a = scores, a.a_row = 1, a.a_term = block.width;
  a.b = rows, a.b_term = sizes_.step();
  a.c = sums, a.c_row = sizes_.step();
  a.rows = block.seen, a.columns = sizes_.step(), a.terms = block.rows;
  a.add = true;
  const bool last = block.index + 1 == sizes_.blocks();
  for (std::size_t i = 0; m.judged != nullptr && i < judged_.size(); ++i)
    judged_[i].Add(a_is, b_is, a, sizes_.width, block.first, last, m.judged[i].*running,
                   m.judged[i]);
  if (!sums_.Makes(scaling::LayerMatmul::kDx)) return sequence_.matrix(a);
  sums_.Add(a_is, b_is, a, sizes_.width, block.first, last, m.sums.*running, m.sums);
}

void HeadMatmuls::AddValueGradient(const QueryBlock& block, const float* p,
                                   const HeadMemory& m) const {
  AddTransposed(block, AttentionOperand::kDvP, p, AttentionOperand::kDvDy, m.dy, m.dv,
                &SumMemory::dv, m);
}

void HeadMatmuls::AddKeyGradient(const QueryBlock& block, const HeadMemory& m) const {
  AddTransposed(block, AttentionOperand::kDkDs, m.dp, AttentionOperand::kDkQ, m.q, m.dk,
                &SumMemory::dk, m);
}

}  // namespace ada::backend::cpu
