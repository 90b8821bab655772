// Attention as products of matrices of one head after the other, between which scores lie in
// scratch memory, a chunk of heads at a time (attention_memory.h).
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops/attention_memory.h"
#include "backend/cuda/ops/attention_rules.h"
#include "backend/cuda/ops/fused_attention.h"
#include "backend/cuda/ops/within_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

using Decision = AttentionSpec::Decision;

// The op of an AttentionSpec. Calls only launch: decisions are made on the device, and scales and
// alphas are read there by the kernels that need them.
class CudaAttention final : public Op {
 public:
  CudaAttention(const Context& context, const AttentionSpec& spec)
      : context_(context),
        spec_(spec),
        sizes_(spec),
        chunks_(sizes_.Scores(), spec.y.shape.n * sizes_.kv_heads,
                context.stream.switches().scores),
        forward_(context, spec, sizes_, chunks_, /*backward=*/false),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats),
        rules_(context, spec, sizes_, CommonOperands(spec, bool{spec.dy})),
        p_stats_(rules_.ProbabilityStats(forward_.operands(), chunks_.most_blocks())) {
    context.scratch.Reserve(forward_.bytes());
    if (spec.dy) PlanBackward();
  }

  void Forward(const Pass& pass) override {
    const AttentionMemory::Places at = forward_.At(context_.scratch.data());
    Packs<StatsLevel::kNone> packs;
    AddParts(pass, at, packs);
    LaunchFused(context_.stream, packs);
    chunks_.For(Heads(pass), [&](const ScoreChunk& chunk, std::int64_t number) {
      const ProbabilityValue p = Probabilities(forward_, at, chunk, number, /*known=*/false);
      // Rounded probabilities are stored where the next matmul reads them; the softmax is not
      // stored anywhere else.
      RoundChunk(
          p_stats_, pass, chunk, at.rounded, DroppedValue{p, Mask(pass, chunk, pass.training)},
          [this](const auto& kernel, int blocks) { Launch(context_.stream, kernel, blocks); });
      forward_.Multiply(AttentionMemory::kY, chunk, at.rounded, at.v, at.y);
    });
    y_stats_.Round(pass, SpanOf(spec_.y), OfHeads(at.y, sizes_.Queries(), 1, nullptr));
  }

  void Backward(const Pass& pass) override {
    if (!spec_.dx[0] && !spec_.dx[1] && !spec_.dx[2]) return;
    const AttentionMemory::Places at = backward_->At(context_.scratch.data());
    if (rules_.measures_parts())
      PackAndDecide<StatsLevel::kMoments>(pass, at);
    else
      PackAndDecide<StatsLevel::kNone>(pass, at);
    // Without a rounding of ds there is no alpha: null stands for 1.
    const WithinRule& rule = rules_[Decision::kDs];
    const float* alpha = spec_.rounds_ds ? rule.alpha() : nullptr;
    chunks_.For(Heads(pass), [&](const ScoreChunk& chunk, std::int64_t number) {
      const ProbabilityValue p = Probabilities(*backward_, at, chunk, number, /*known=*/true);
      const ScoreMask mask = Mask(pass, chunk, true);
      // Probabilities are rounded to the bits of the forward pass: random words go by the place of
      // a score.
      RoundChunkAgain(context_.stream, p_stats_, pass, chunk, at.rounded, DroppedValue{p, mask});
      backward_->Multiply(AttentionMemory::kDv, chunk, at.rounded, at.dy, at.dv);
      backward_->Multiply(AttentionMemory::kDp, chunk, at.dy, at.v, at.dp);
      const ScoreTerms terms{p, at.dp, mask};
      const std::int64_t rows = chunk.heads * sizes_.Rows();
      Launch(context_.stream, ScoreSlopesKernel{rows, terms, at.slopes},
             GroupThreads::Blocks(rows));
      if (spec_.rounds_ds) rule.ObserveChunk(ScoreGradientValue{terms, at.slopes, nullptr}, chunk);
      RoundChunk(ds_stats_, pass, chunk, at.rounded, ScoreGradientValue{terms, at.slopes, alpha},
                 [&](const auto& kernel, int blocks) {
                   if (chunk.is_last())
                     rules_.LaunchLast(pass, kernel, blocks);
                   else
                     Launch(context_.stream, kernel, blocks);
                 });
      backward_->Multiply(AttentionMemory::kDq, chunk, at.rounded, at.k, at.dq);
      backward_->Multiply(AttentionMemory::kDk, chunk, at.rounded, at.q, at.dk);
    });
    RoundGradients(pass, {at.dq, at.dk, at.dv});
  }

 private:
  float Factor() const { return static_cast<float>(sizes_.factor()); }
  std::int64_t Heads(const Pass& pass) const { return pass.rows * sizes_.kv_heads; }

  void PlanBackward() {
    spec_.dx.resize(3);
    for (std::size_t i = 0; i < 3; ++i)
      if (spec_.dx[i]) dx_stats_[i] = RoundingStats(context_, spec_.dx[i]);
    backward_.emplace(context_, spec_, sizes_, chunks_, /*backward=*/true);
    context_.scratch.Reserve(backward_->bytes());
    ds_stats_ = rules_.GradientStats(backward_->operands(), chunks_.most_blocks());
    if (!spec_.keeps_probabilities) return;
    kept_ = context_.Allocate<float>(chunks_.Place(chunks_.count()));
  }

  // --- Between tensors and heads ---

  // One launch copies queries, keys, values and dy of the batch to [images, heads, positions,
  // width], in the storage in which they are multiplied, and takes the moments of the parts that a
  // rule looks at.
  template <StatsLevel kLevel>
  using Packs = FusedKernels<PackHeadsKernel<kLevel>, 4>;
  template <StatsLevel kLevel>
  void AddParts(const Pass& pass, const AttentionMemory::Places& at, Packs<kLevel>& packs) const {
    const TensorSpan to[] = {at.q, at.k, at.v};
    for (std::size_t part = 0; part < 3; ++part) {
      const HeadShape shape = part == 0 ? sizes_.Queries() : sizes_.Keys();
      AddPack(pass, spec_.x[spec_.fused() ? 0 : part], shape, sizes_.FirstOf(part),
              rules_.part(part), to[part], packs);
    }
  }
  template <StatsLevel kLevel>
  static void AddPack(const Pass& pass, const Tensor& from, HeadShape shape, std::int64_t first,
                      const RoundingStats& stats, const TensorSpan& to, Packs<kLevel>& packs) {
    shape.channels = static_cast<std::uint32_t>(from.shape.c);
    shape.first = static_cast<std::uint32_t>(first);
    const std::int64_t n = std::int64_t{pass.rows} * shape.heads * shape.positions * shape.width;
    const FlatBlocks flat = FlatBlocksOf(n);
    Rounding how;
    if (kLevel != StatsLevel::kNone && stats.wanted()) how = stats.For(pass);
    packs.Add({{how, n, flat.size}, SpanOf(from), to, shape, shape.vec4()}, flat.blocks);
  }
  // A Value for RoundingStats: sums by head, read in the order of the tensor, times factor and
  // alpha.
  static HeadsValue OfHeads(const float* sums, const HeadShape& shape, float factor,
                            const float* alpha) {
    return {sums, shape, factor, alpha, shape.vec4()};
  }

  // --- Scores ---

  // Leaves a chunk's scores or probabilities in memory. known: kept ones are.
  ProbabilityValue Probabilities(const AttentionMemory& memory, const AttentionMemory::Places& at,
                                 const ScoreChunk& chunk, std::int64_t number, bool known) {
    const ScoreShape shape = sizes_.Shape();
    float* scores = kept_ != nullptr ? kept_ + chunks_.Place(number) : at.scores;
    const ProbabilityValue kept{shape, scores, nullptr, Factor()};
    if (kept_ != nullptr && known) return kept;
    memory.Multiply(AttentionMemory::kScores, chunk, at.q, at.k, scores);
    const std::int64_t rows = chunk.heads * sizes_.Rows();
    Launch(context_.stream, ScoreSumsKernel{shape, rows, scores, Factor(), at.sums},
           GroupThreads::Blocks(rows));
    const ProbabilityValue p{shape, scores, at.sums, Factor()};
    if (kept_ == nullptr) return p;
    ForEach(context_.stream, chunk.values, KeepProbabilities{p, scores});
    return kept;
  }
  // Dropout's mask of a chunk; its random words go by the number of the score in the batch of all
  // processes.
  ScoreMask Mask(const Pass& pass, const ScoreChunk& chunk, bool drops) const {
    const std::int64_t each = sizes_.kv_heads * sizes_.Scores();
    const float rate = drops ? spec_.dropout : 0;
    return {context_.pass, spec_.stream, rate, 1.0f / (1.0f - rate),
            pass.first_row * each + chunk.before};
  }

  // --- Gradients ---

  // dv and ds are products of dy: decided before it is read, by the last block that packs.
  template <StatsLevel kLevel>
  void PackAndDecide(const Pass& pass, const AttentionMemory::Places& at) {
    Packs<kLevel> packs;
    AddParts(pass, at, packs);
    AddPack(pass, spec_.dy.tensor, sizes_.Queries(), 0, RoundingStats(), at.dy, packs);
    rules_.LaunchFirst(pass, packs);
  }

  // dx of queries, keys and values, from their sums by head: observed before alpha, then rounded
  // once, in one launch for those that are measured alike.
  void RoundGradients(const Pass& pass, const std::array<const float*, 3>& sums) const {
    constexpr std::array<Decision, 3> kDecisions = {Decision::kDq, Decision::kDk, Decision::kDv};
    for (const StatsLevel level :
         {StatsLevel::kNone, StatsLevel::kLargest, StatsLevel::kMoments, StatsLevel::kCounts})
      AtStatsLevel(level, [&](auto of_level) {
        FusedKernels<RoundValuesKernel<HeadsValue, decltype(of_level)::value>, 3> all;
        for (std::size_t part = 0; part < 3; ++part) {
          if (!spec_.dx[part] || dx_stats_[part].Level(pass) != level) continue;
          const HeadShape shape = part == 0 ? sizes_.Queries() : sizes_.Keys();
          const float factor = part == 2 ? 1 : Factor();
          const WithinRule& rule = rules_[kDecisions[part]];
          const Rounding how = dx_stats_[part].For(pass);
          const FlatBlocks flat = FlatBlocksOf(how.values);
          rule.Observe(OfHeads(sums[part], shape, factor, nullptr), how.values);
          all.Add({{how, how.values, flat.size},
                   OfHeads(sums[part], shape, factor, rule.alpha()),
                   SpanOf(spec_.dx[part].tensor)},
                  flat.blocks);
        }
        if (all.count > 0) LaunchFused(context_.stream, all);
      });
  }

  Context context_;
  AttentionSpec spec_;
  AttentionSizes sizes_;
  ScoreChunks chunks_;
  AttentionMemory forward_;
  std::optional<AttentionMemory> backward_;
  RoundingStats y_stats_;
  AttentionRules rules_;
  RoundingStats p_stats_, ds_stats_;
  std::array<RoundingStats, 3> dx_stats_;  // of queries, keys, values
  float* kept_ = nullptr;                  // probabilities, chunk by chunk
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AttentionSpec& s) {
  if (FusesAttention(c, s)) return MakeFusedAttention(c, s);
  return std::make_unique<CudaAttention>(c, s);
}

}  // namespace ada::backend::cuda
