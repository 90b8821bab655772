// See attention_groups.h.
#include "backend/cpu/ops/attention_groups.h"

#include <new>

#include "number/number_grid.h"

namespace ada::backend::cpu {

void HeadGroups::PointToLines(const HeadMemory& m, SumMemory& sums) const {
  sums.lines_step = HeadMemory::MostLines(sizes_);
  for (std::size_t i = 0; i < kAttentionOperands; ++i)
    if (KeepsLines(spec_, static_cast<AttentionOperand>(i)))
      sums.lines[i] = LinesOf(m, static_cast<AttentionOperand>(i));
}

HeadMemory HeadGroups::MemoryOf(int worker) const {
  std::byte* memory = context_.scratch.worker(worker);
  HeadMemory m(sizes_, reinterpret_cast<float*>(memory));
  memory += HeadBytes();
  const HeadSums& sums = products_.sums();
  if (sums.any()) m.sums = sums.Cut(memory), memory += sums.bytes();
  PointToLines(m, m.sums);
  const std::vector<HeadSums>& judged = products_.judged();
  if (judged.empty()) return m;
  m.judged = reinterpret_cast<SumMemory*>(memory);
  memory += JudgedBytes();
  for (std::size_t i = 0; i < judged.size(); ++i) {
    PointToLines(m, *new (m.judged + i) SumMemory(judged[i].Cut(memory)));
    memory += judged[i].bytes();
  }
  return m;
}

void HeadGroups::LoadKeys(const Pass& pass, std::int64_t image, std::int64_t kv_head,
                          const HeadMemory& m, bool counts) {
  tensors_.LoadPart(1, image, kv_head, m.k);
  products_.TransposeKeys(
      KeysRounded(pass, AttentionOperand::kSK, image, kv_head, m.k, m.k_rounded, m, counts), m.kt);
}

void HeadGroups::LoadForBackward(const Pass& pass, std::int64_t image, std::int64_t kv_head,
                                 const HeadMemory& m, bool counts) {
  LoadKeys(pass, image, kv_head, m, /*counts=*/false);
  tensors_.LoadPart(2, image, kv_head, m.v);
  products_.TransposeKeys(
      KeysRounded(pass, AttentionOperand::kDpV, image, kv_head, m.v, m.v, m, counts), m.vt);
}

float* HeadGroups::Rounded(const Pass& pass, AttentionOperand operand, std::int64_t image,
                           std::int64_t head, const HeadMatrix& of, float* values, float* to,
                           const HeadMemory& m, bool counts) {
  if (counts && operands_.Judges(pass)) operands_.Judge(operand, image, head, of, m.work);
  if (!operands_.Rounds(operand)) return values;
  operands_.Round(pass, operand, image, head, of, to, m.work,
                  {LinesOf(m, operand), HeadMemory::MostLines(sizes_)}, counts);
  return to;
}
float* HeadGroups::KeysRounded(const Pass& pass, AttentionOperand operand, std::int64_t image,
                               std::int64_t kv_head, float* values, float* to, const HeadMemory& m,
                               bool counts) {
  return Rounded(pass, operand, image, kv_head, {values, sizes_.keys, sizes_.width, sizes_.step()},
                 values, to, m, counts);
}
float* HeadGroups::QueriesRounded(const Pass& pass, AttentionOperand operand,
                                  const QueryGroup& group, float* values, float* to,
                                  const HeadMemory& m, bool counts) {
  return Rounded(pass, operand, group.front().image, group.front().head,
                 {values, RowsOf(group), sizes_.width, sizes_.step()}, values, to, m, counts);
}
float* HeadGroups::ScoresRounded(const Pass& pass, AttentionOperand operand,
                                 const QueryGroup& group, float* values, float* to,
                                 const HeadMemory& m) {
  return Rounded(pass, operand, group.front().image, group.front().head,
                 {values, RowsOf(group), sizes_.keys, group.front().width}, values, to, m,
                 /*counts=*/true);
}

float HeadGroups::LargestOfProcesses(const Pass& pass,
                                     const std::vector<std::uint32_t>& parts) const {
  const float mine = OfBits(*std::max_element(parts.begin(), parts.end()));
  if (pass.whole_rows == 0 || !IsShared(context_.shared.rules)) return mine;
  return static_cast<float>(LargestOfAll(*context_.shared.rules, static_cast<double>(mine)));
}

float HeadGroups::LargestStored(const Pass& pass, const Tensor& tensor, std::int64_t first,
                                std::int64_t channels) const {
  std::vector<std::uint32_t> parts(static_cast<std::size_t>(pass.rows));
  context_.pool.For(pass.rows, [&](std::int64_t image, int) {
    std::uint32_t& most = parts[static_cast<std::size_t>(image)];
    for (std::int64_t at = first; at < tensor.shape.per_image(); at += tensor.shape.c)
      most = std::max(
          most, context_.kernels.largest_stored(Advance(cpu::At(tensor, image), at), channels));
  });
  return LargestOfProcesses(pass, parts);
}

void HeadGroups::FindScales(const Pass& pass, std::initializer_list<AttentionOperand> operands) {
  for (const AttentionOperand operand : operands) {
    if (!operands_.AsksLargest(pass, operand)) continue;
    const auto part = static_cast<std::size_t>(TensorOf(operand));  // those beyond values: dy
    operands_.SetLargest(
        operand, part > 2 ? LargestStored(pass, spec_.dy.tensor, 0, spec_.dy.tensor.shape.c)
                          : LargestStored(pass, tensors_.TensorOf(part), tensors_.FirstOf(part),
                                          tensors_.ChannelsOf(part)));
  }
}

}  // namespace ada::backend::cpu
