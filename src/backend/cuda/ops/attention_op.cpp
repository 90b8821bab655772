// Attention as products of matrices of one head after the other, between which scores lie in
// scratch memory, a chunk of heads at a time (attention_memory.h); roundings and decisions of the
// four alphas.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/ops/attention_memory.h"
#include "backend/cuda/rounding/alpha_rule.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// What a decision looks at; see DecideWithin.
struct DecisionInputs {
  const TensorMoments *gradient = nullptr, *factor = nullptr, *more = nullptr;
  double times = 1;
};

// How attention gets one of its four alphas: the decision, and the observation of the gradient
// afterwards, all in the stream. The rule of one of attention's decisions. Made with the op, one
// for each Decision; in a pass Decide comes first, then Observe or ObserveChunk for every chunk, in
// their order.
class WithinRule {
 public:
  // scaler: in memory of AllocateShared, its rule set and sent; null: nothing is decided.
  WithinRule(const Context& context, scaling::LayerScaler* scaler);
  // Whether a decision may look at moments.
  bool looks() const { return looks_; }
  // What decides by `seen`. scale_out: S of the gradient; null: not stored.
  DecideWithin By(const DecisionInputs& seen, const float* scale_in, float* scale_out) const {
    return {scaler_, seen.gradient, seen.factor, seen.more, seen.times, scale_in, scale_out};
  }
  // Launches what exact_range observes of the gradient, before alpha; nothing for others. value(i):
  // its values (round_values.h), all of them or a chunk's.
  template <class Value>
  void Observe(const Value& value, std::int64_t values) const {
    if (tail_ == nullptr) return;
    const FlatBlocks flat = FlatBlocksOf(values);
    Launch(stream_, Tail(value, values, flat), flat.blocks);
    if (joined_) joined_->Join();
  }
  // All chunks add to one set of totals, which the launch of the last chunk hands to the scaler.
  template <class Value>
  void ObserveChunk(const Value& value, const ScoreChunk& chunk) const {
    if (tail_ == nullptr) return;
    Launch(stream_,
           PartOfLaunch<TailKernel<Value>>{Tail(value, chunk.values, chunk.flat), chunk.first_block,
                                           chunk.blocks},
           chunk.flat.blocks);
    if (joined_ && chunk.is_last()) joined_->Join();
  }
  // In backend memory.
  const float* alpha() const { return &scaler_->decision.alpha; }

 private:
  template <class Value>
  TailKernel<Value> Tail(const Value& value, std::int64_t values, const FlatBlocks& flat) const {
    return {scaler_, value, values, flat.size, tail_, joined_ ? joined_->part() : nullptr};
  }

  Stream& stream_;
  scaling::LayerScaler* scaler_;
  bool looks_ = false;
  TailTotals* tail_ = nullptr;
  std::optional<JoinedTail> joined_;  // of a run that several processes share
};

// Moments of tensors of the batch, over all processes that share it.
// An op makes one for the decisions before its products and one for those after: each Join is one
// message.
class MomentsOfAll {
 public:
  explicit MomentsOfAll(const Context& context);
  // Launches what brings them together. After it At(k) are those of `here.of[k]`.
  void Join(const MomentsHere& here);
  // Whether that takes launches: what reads the moments comes after them then.
  bool joins() const { return link_ != nullptr; }
  const TensorMoments* At(int k) const { return joined_ != nullptr ? joined_ + k : here_.of[k]; }

 private:
  Stream& stream_;
  Link* link_;  // null: what this process has is all there is
  MomentsHere here_{};
  MomentsPart *part_ = nullptr, *parts_ = nullptr;
  TensorMoments* joined_ = nullptr;
};

WithinRule::WithinRule(const Context& context, scaling::LayerScaler* scaler)
    : stream_(context.stream), scaler_(scaler) {
  if (scaler == nullptr) return;
  const scaling::LayerRule& rule = context.Host(scaler)->rule;
  // The host's copy of the rule, which is a constant of the run, tells what to plan for.
  looks_ = scaling::MayNeedMoments(rule);
  if (rule.method != scaling::LayerMethod::kExactRange) return;
  tail_ = context.AllocateZeroed<TailTotals>(1);
  if (RulesLink(context.link) != nullptr) joined_.emplace(context, scaler);
}

MomentsOfAll::MomentsOfAll(const Context& context)
    : stream_(context.stream), link_(RulesLink(context.link)) {
  if (link_ == nullptr) return;
  part_ = context.Allocate<MomentsPart>(MomentsHere::kMost);
  parts_ = context.Allocate<MomentsPart>(std::int64_t{MomentsHere::kMost} * link_->ranks());
  joined_ = context.Allocate<TensorMoments>(MomentsHere::kMost);
}

void MomentsOfAll::Join(const MomentsHere& here) {
  here_ = here;
  if (link_ == nullptr) return;
  // Parts travel with the number of values that they are of, so that means are weighted by it.
  ForEach(stream_, MomentsHere::kMost, PutMoments{here, part_});
  link_->AllGatherInStream(part_, MomentsHere::kMost * sizeof(MomentsPart), parts_);
  ForEach(stream_, MomentsHere::kMost, JoinMomentsOfAll{here, parts_, link_->ranks(), joined_});
}

// --- The op ---

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
        rules_{RuleOf(Decision::kDv), RuleOf(Decision::kDs), RuleOf(Decision::kDq),
               RuleOf(Decision::kDk)},
        moments_first_(context),
        moments_last_(context) {
    // Moments of p are taken in the forward pass, for decisions of the backward pass that follows.
    const bool looks_first = rules_[Decision::kDv].looks() || rules_[Decision::kDs].looks();
    if (looks_first) p_moments_ = context.Allocate<TensorMoments>(1);
    p_stats_ = ScoreStats(spec.rounds_p ? spec.p_format : kFp32,
                          spec.rounds_p ? spec.p_style : RoundingStyle{}, spec.p_stats, nullptr,
                          p_moments_, forward_.operands());
    finished_ = context.AllocateZeroed<std::uint32_t>(1);
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
    if (part_stats_[0].wanted() || part_stats_[1].wanted() || part_stats_[2].wanted())
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
      RoundChunk(
          ds_stats_, pass, chunk, at.rounded, ScoreGradientValue{terms, at.slopes, alpha},
          [&](const auto& kernel, int blocks) { LaunchAndDecide(pass, chunk, kernel, blocks); });
      backward_->Multiply(AttentionMemory::kDq, chunk, at.rounded, at.k, at.dq);
      backward_->Multiply(AttentionMemory::kDk, chunk, at.rounded, at.q, at.dk);
    });
    RoundGradients(pass, {at.dq, at.dk, at.dv});
  }

 private:
  // A rule without a scaler decides nothing: ds where it is not rounded.
  WithinRule RuleOf(Decision decision) const {
    const bool decides = decision != Decision::kDs || spec_.rounds_ds;
    return {context_, decides ? spec_.scalers[decision] : nullptr};
  }
  float Factor() const { return static_cast<float>(sizes_.factor()); }
  std::int64_t Heads(const Pass& pass) const { return pass.rows * sizes_.kv_heads; }

  // Rules that look at moments of queries, keys or values measure the packed copies; what is not
  // looked at is not measured.
  void PlanBackward() {
    spec_.dx.resize(3);
    for (std::size_t i = 0; i < 3; ++i)
      if (spec_.dx[i]) dx_stats_[i] = RoundingStats(context_, spec_.dx[i]);
    backward_.emplace(context_, spec_, sizes_, chunks_, /*backward=*/true);
    context_.scratch.Reserve(backward_->bytes());
    const bool looks_last = rules_[Decision::kDq].looks() || rules_[Decision::kDk].looks();
    if (looks_last) ds_moments_ = context_.Allocate<TensorMoments>(1);
    ds_stats_ =
        ScoreStats(spec_.ds_format, spec_.ds_style, spec_.rounds_ds ? spec_.ds_stats : nullptr,
                   spec_.ds_scale, ds_moments_, backward_->operands());
    if (rules_[Decision::kDv].looks() || rules_[Decision::kDs].looks())
      ADA_CHECK(spec_.dy.moments != nullptr);
    if (rules_[Decision::kDs].looks()) part_stats_[2] = PartStats(2);
    if (rules_[Decision::kDq].looks()) part_stats_[1] = PartStats(1);
    if (rules_[Decision::kDk].looks()) part_stats_[0] = PartStats(0);
    if (!spec_.keeps_probabilities) return;
    kept_ = context_.Allocate<float>(chunks_.Place(chunks_.count()));
  }

  // Measures all scores of the batch, which are in memory chunk by chunk in this storage.
  // Statistics are taken over the launches of all chunks as if these were one tensor, which never
  // is in memory: its address is read by nobody.
  RoundingStats ScoreStats(const NumberFormat& format, const RoundingStyle& style,
                           TensorStats* stats, float* scale, TensorMoments* moments,
                           Storage storage) const {
    static std::byte nothing;
    Gradient g;
    g.tensor.shape = {spec_.y.shape.n, sizes_.heads, sizes_.queries, sizes_.keys};
    g.tensor.format = format, g.tensor.storage = storage, g.tensor.data = &nothing;
    g.style = style, g.stats = stats, g.scale = scale, g.moments = moments;
    if (scale != nullptr) return {context_, g, chunks_.most_blocks()};
    return {context_, g.tensor, style, stats, moments, chunks_.most_blocks()};
  }
  // Moments of queries (part 0), keys (1) or values (2), as they are packed.
  RoundingStats PartStats(std::size_t part) {
    Tensor tensor;
    tensor.shape = {spec_.y.shape.n, 1, 1, sizes_.ValuesOfPart(part)};
    tensor.storage = backward_->operands(), tensor.data = spec_.y.data;
    part_moments_[part] = context_.Allocate<TensorMoments>(1);
    return {context_, tensor, {}, nullptr, part_moments_[part]};
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
              part_stats_[part], to[part], packs);
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

  // --- Decisions ---

  // dv and ds are products of dy: decided before it is read, by the last block that packs. Joined
  // moments are found in the order in which they are given to Join.
  template <StatsLevel kLevel>
  void PackAndDecide(const Pass& pass, const AttentionMemory::Places& at) {
    Packs<kLevel> packs;
    AddParts(pass, at, packs);
    AddPack(pass, spec_.dy.tensor, sizes_.Queries(), 0, RoundingStats(), at.dy, packs);
    const bool in_turn = context_.stream.switches().fused && !moments_first_.joins();
    if (!in_turn) LaunchFused(context_.stream, packs);
    if (p_moments_ != nullptr)
      moments_first_.Join({{spec_.dy.moments, p_moments_, part_moments_[2]},
                           {Images(pass, spec_.y.shape.per_image()),
                            Images(pass, sizes_.kv_heads * sizes_.Scores()),
                            Images(pass, sizes_.ValuesOfPart(2))}});
    const TensorMoments *dy = moments_first_.At(0), *p = moments_first_.At(1);
    const DecideBothKernel decide = {
        {rules_[Decision::kDv].By({dy, p}, spec_.dy.scale, ScaleOf(2)),
         rules_[Decision::kDs].By({dy, p, moments_first_.At(2)}, spec_.dy.scale, spec_.ds_scale)}};
    if (in_turn)
      LaunchInTurn(context_.stream, packs, decide, finished_, packs.blocks());
    else
      Launch(context_.stream, decide, 1);
  }
  // dq and dk are products of ds: decided by the last block that rounds it.
  template <class Kernel>
  void LaunchAndDecide(const Pass& pass, const ScoreChunk& chunk, const Kernel& kernel,
                       int blocks) {
    if (!chunk.is_last()) return Launch(context_.stream, kernel, blocks);
    if (moments_last_.joins()) Launch(context_.stream, kernel, blocks);
    if (ds_moments_ != nullptr)
      moments_last_.Join(
          {{ds_moments_, part_moments_[1], part_moments_[0]},
           {Images(pass, sizes_.kv_heads * sizes_.Scores()), Images(pass, sizes_.ValuesOfPart(1)),
            Images(pass, sizes_.ValuesOfPart(0))}});
    const TensorMoments* ds = moments_last_.At(0);
    const double factor = sizes_.factor();
    const DecideBothKernel decide = {
        {rules_[Decision::kDq].By({ds, moments_last_.At(1), nullptr, factor}, spec_.ds_scale,
                                  ScaleOf(0)),
         rules_[Decision::kDk].By({ds, moments_last_.At(2), nullptr, factor}, spec_.ds_scale,
                                  ScaleOf(1))}};
    if (moments_last_.joins())
      Launch(context_.stream, decide, 1);
    else
      LaunchInTurn(context_.stream, kernel, decide, finished_, blocks);
  }
  // Values of this process's part of the batch, where an image has `each`.
  static double Images(const Pass& pass, std::int64_t each) {
    return static_cast<double>(pass.rows) * static_cast<double>(each);
  }
  float* ScaleOf(std::size_t part) const { return spec_.dx[part] ? spec_.dx[part].scale : nullptr; }

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
  RoundingStats y_stats_, p_stats_, ds_stats_;
  std::array<RoundingStats, 3> dx_stats_, part_stats_;  // of queries, keys, values
  std::array<WithinRule, 4> rules_;                     // by Decision
  TensorMoments *p_moments_ = nullptr, *ds_moments_ = nullptr;
  std::array<TensorMoments*, 3> part_moments_{};
  MomentsOfAll moments_first_, moments_last_;
  float* kept_ = nullptr;              // probabilities, chunk by chunk
  std::uint32_t* finished_ = nullptr;  // blocks of a launch that decides
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AttentionSpec& s) {
  return std::make_unique<CudaAttention>(c, s);
}

}  // namespace ada::backend::cuda
