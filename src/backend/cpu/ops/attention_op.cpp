// Attention: heads of images shared by the workers, no more of [queries, keys] in memory than a
// block of one head (but for probabilities that are kept, and a whole head where operands are
// rounded once more), roundings and decisions of AttentionSpec.
//
//   forward    heads:  q, k, v --> p --round, count--> y in fp32
//              images: y --round, count--> y
//   backward   decide dv, ds
//              heads:  q, k, v --> p; dy --> ds --times alpha, round, count--> ds
//                      dq, dk, dv in fp32
//              decide dq, dk (of ds as stored)
//              images: dq, dk, dv --times alpha, round, count--> dq, dk, dv
#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "backend/attention_formulas.h"
#include "backend/cpu/ops/attention_groups.h"
#include "backend/cpu/ops/attention_scores.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

using Decision = AttentionSpec::Decision;

// The op of an AttentionSpec. A worker takes one head of keys with all query heads that read it, so
// that dk and dv of that head are sums of one worker, in an order that does not depend on the
// number of threads.
class CpuAttention final : public Op {
 public:
  CpuAttention(const Context& context, const AttentionSpec& spec)
      : context_(context),
        spec_(spec),
        sizes_(spec),
        heads_(context, spec_, sizes_),
        scores_(context, spec, sizes_),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        tails_{TailCounter(context), TailCounter(context), TailCounter(context),
               TailCounter(context)} {
    const bool trains = static_cast<bool>(spec.dy);
    const std::int64_t images = spec.y.shape.n;
    // p and ds are measured as if they were tensors of ScoreBlocks, one block of queries being one
    // image of it: a block of statistics then is what one worker computes at a time.
    p_stats_ =
        RoundingStats(ScoreBlocks(sizes_, images, spec.rounds_p ? spec.p_format : kFp32),
                      spec.rounds_p ? spec.p_style : RoundingStyle{}, spec.p_stats,
                      MayNeed(Decision::kDv) || MayNeed(Decision::kDs) ? &p_moments_ : nullptr, 1);
    if (trains) {
      spec_.dx.resize(3);
      for (std::size_t i = 0; i < 3; ++i) dx_stats_[i] = RoundingStats(spec_.dx[i]);
      Gradient ds;
      ds.tensor = ScoreBlocks(sizes_, images, spec.ds_format);
      ds.scale = spec.ds_scale, ds.stats = spec.rounds_ds ? spec.ds_stats : nullptr;
      ds.style = spec.ds_style;
      if (MayNeed(Decision::kDq) || MayNeed(Decision::kDk)) ds.moments = &ds_moments_;
      ds_stats_ = RoundingStats(ds, 1);
    }
    // Kept probabilities cost 4 bytes a score; without them Backward computes p anew, to the same
    // bits.
    if (trains && spec.keeps_probabilities) {
      kept_.resize(static_cast<std::size_t>(images * sizes_.heads * sizes_.queries * sizes_.keys));
      context.scratch.CountOwn(static_cast<std::ptrdiff_t>(kept_.size() * sizeof(float)));
    }
    counts_.resize((1 + heads_.products().judged().size()) *
                   static_cast<std::size_t>(images * sizes_.kv_heads));
    context.scratch.Reserve(WorkerBytes(),
                            static_cast<std::size_t>(SharedValues(trains)) * sizeof(float));
  }

  // y is gathered in fp32 in the memory that workers share and rounded as a whole afterwards: its
  // reduction blocks are cut by images, not by heads.
  void Forward(const Pass& pass) override {
    float* y = Shared();
    heads_.FindScales(pass, {AttentionOperand::kSQ, AttentionOperand::kSK, AttentionOperand::kYV});
    if (heads_.operands().AsksLargest(pass, AttentionOperand::kYP) ||
        heads_.operands().AsksLargest(pass, AttentionOperand::kDvP)) {
      largest_p_ = heads_.LargestOfHeads(
          pass, HeadGroups::Loads::kKeys, [&](const QueryGroup& group, const HeadMemory& m) {
            return heads_.LargestIn(group, ProbabilitiesOf(pass, group, m, /*counts=*/false));
          });
      heads_.operands().SetLargest(AttentionOperand::kYP, largest_p_);
    }
    heads_.ForHeads(pass, [&](std::int64_t image, std::int64_t kv_head, int worker) {
      HeadMemory m = heads_.MemoryOf(worker);
      PointToCounts(scaling::LayerMatmul::kForward, pass, image, kv_head, m, &SumMemory::forward);
      heads_.LoadKeys(pass, image, kv_head, m, /*counts=*/true);
      heads_.tensors().LoadPart(2, image, kv_head, m.v);
      heads_.KeysRounded(pass, AttentionOperand::kYV, image, kv_head, m.v, m.v, m, true);
      heads_.ForGroups(image, kv_head, [&](const QueryGroup& group) {
        float* pr = ProbabilitiesOf(pass, group, m, /*counts=*/true);
        pr = heads_.ScoresRounded(pass, AttentionOperand::kYP, group, pr, m.pr, m);
        for (const QueryBlock& block : group) {
          heads_.products().Outputs(block, pr + HeadGroups::Before(group, block) * block.width, m);
          heads_.tensors().StoreQueries(block, m.out, 1, y);
        }
      });
    });
    FinishCounts(scaling::LayerMatmul::kForward, pass);
    p_stats_.Finish(scores_.PassOfBlocks(pass));
    heads_.operands().Finish(pass, AttentionOperand::kSQ, AttentionOperand::kYV);
    RoundWhole(pass, y, 1, spec_.y, y_stats_, nullptr);
  }

  void Backward(const Pass& pass) override {
    if (!AnyGradient()) return;
    // alpha of ds has to be known before the first block of ds is rounded; those of dq and dk
    // depend on the moments of all of ds. All three gradients are rounded after the loop.
    DecideFirst(pass);
    FindBackwardScales(pass);
    std::array<float*, 3> raw = GradientMemory();
    heads_.ForHeads(pass, [&](std::int64_t image, std::int64_t kv_head, int worker) {
      HeadMemory m = heads_.MemoryOf(worker);
      PointToCounts(scaling::LayerMatmul::kDx, pass, image, kv_head, m, &SumMemory::dx);
      heads_.LoadForBackward(pass, image, kv_head, m, /*counts=*/true);
      heads_.KeysRounded(pass, AttentionOperand::kDqK, image, kv_head, m.k, m.k, m, true);
      std::fill_n(m.dk, sizes_.keys * sizes_.step(), 0.0f);
      std::fill_n(m.dv, sizes_.keys * sizes_.step(), 0.0f);
      heads_.ForGroups(image, kv_head, [&](const QueryGroup& group) {
        ScoreGradients(pass, group, m, Purpose::kGradients, worker);
        float* const ds = m.dp;
        m.dp = heads_.ScoresRounded(pass, AttentionOperand::kDkDs, group, ds, m.pr, m);
        float* const q = m.q;
        m.q = heads_.QueriesRounded(pass, AttentionOperand::kDkQ, group, q, m.q_rounded, m, true);
        for (const QueryBlock& block : group)
          heads_.products().AddKeyGradient(block, heads_.At(m, group, block));
        m.q = q;
        m.dp = heads_.ScoresRounded(pass, AttentionOperand::kDqDs, group, ds, ds, m);
        for (const QueryBlock& block : group) {
          heads_.products().QueryGradient(block, heads_.At(m, group, block));
          heads_.tensors().StoreQueries(block, m.out, Factor(), raw[0]);
        }
        m.dp = ds;
      });
      heads_.tensors().StoreKeys(image, kv_head, m.dk, Factor(), raw[1]);
      heads_.tensors().StoreKeys(image, kv_head, m.dv, 1, raw[2]);
    });
    FinishCounts(scaling::LayerMatmul::kDx, pass);
    ds_stats_.Finish(scores_.PassOfBlocks(pass));
    heads_.operands().Finish(pass, AttentionOperand::kDvP, AttentionOperand::kDkQ);
    if (spec_.rounds_ds) tails_[Decision::kDs].Finish(&ScalerOf(Decision::kDs));
    DecideLast(pass);
    constexpr Decision kOf[] = {Decision::kDq, Decision::kDk, Decision::kDv};
    for (std::size_t i = 0; i < 3; ++i) RoundGradient(pass, i, kOf[i], raw[i]);
  }

 private:
  // Whether this decision's rule may ever look at moments, so that they are taken in every pass.
  bool MayNeed(Decision decision) const {
    const scaling::LayerScaler* scaler = spec_.scalers[decision];
    if (decision == Decision::kDs && !spec_.rounds_ds) return false;
    return scaler != nullptr && scaling::MayNeedMoments(scaler->rule);
  }
  scaling::LayerScaler& ScalerOf(Decision decision) const { return *spec_.scalers[decision]; }
  bool AnyGradient() const {
    return std::any_of(spec_.dx.begin(), spec_.dx.end(),
                       [](const Gradient& dx) { return static_cast<bool>(dx); });
  }
  float Factor() const { return static_cast<float>(sizes_.factor()); }

  // --- Memory ---

  // The largest amount that a worker needs at one time beside a head's: a part for MomentsOfPart,
  // or a block of y.
  std::int64_t WorkerValues() const {
    const std::int64_t part =
        kMomentPositions * std::max(sizes_.heads, sizes_.kv_heads) * sizes_.width;
    return std::max(part, static_cast<std::int64_t>(BlockValues(spec_.y.shape)));
  }
  std::size_t WorkerBytes() const {
    return std::max(static_cast<std::size_t>(WorkerValues()) * sizeof(float), heads_.bytes());
  }
  // Where the sums themselves (rule 0) and those that are judged are counted; null: nobody asks.
  scaling::AccumulatorCounts* CountsTo(scaling::LayerMatmul matmul, const Pass& pass,
                                       std::size_t rule) const {
    const MatmulSums& sums = spec_.sums[scaling::IndexOf(matmul)];
    if (rule > 0)
      return pass.bins && rule <= sums.judged.size() ? sums.judged[rule - 1].counts : nullptr;
    return pass.count && sums.rule ? sums.counts : nullptr;
  }
  scaling::AccumulatorCounts& CountsAt(std::size_t rule, std::int64_t head) {
    const std::size_t heads = static_cast<std::size_t>(spec_.y.shape.n * sizes_.kv_heads);
    return counts_[rule * heads + static_cast<std::size_t>(head)];
  }
  std::size_t rules() const { return 1 + heads_.products().judged().size(); }
  // Where what a head's sums of this matmul lose is counted.
  void PointToCounts(scaling::LayerMatmul matmul, const Pass& pass, std::int64_t image,
                     std::int64_t kv_head, HeadMemory& m,
                     scaling::AccumulatorCounts* SumMemory::*counts) {
    for (std::size_t rule = 0; rule < rules(); ++rule) {
      if (CountsTo(matmul, pass, rule) == nullptr) continue;
      scaling::AccumulatorCounts& own = CountsAt(rule, image * sizes_.kv_heads + kv_head);
      own = scaling::AccumulatorCounts();
      SumMemory& sums = rule == 0 ? m.sums : m.judged[rule - 1];
      sums.*counts = &own;
    }
  }
  void FinishCounts(scaling::LayerMatmul matmul, const Pass& pass) {
    for (std::size_t rule = 0; rule < rules(); ++rule) {
      scaling::AccumulatorCounts* const to = CountsTo(matmul, pass, rule);
      if (to == nullptr) continue;
      *to = scaling::AccumulatorCounts();
      for (std::int64_t i = 0; i < pass.rows * sizes_.kv_heads; ++i) to->Add(CountsAt(rule, i));
    }
  }
  std::int64_t QueryValues() const {
    return spec_.y.shape.n * sizes_.queries * sizes_.heads * sizes_.width;
  }
  std::int64_t KeyValues() const {
    return spec_.y.shape.n * sizes_.keys * sizes_.kv_heads * sizes_.width;
  }
  std::int64_t SharedValues(bool trains) const {
    return QueryValues() + (trains ? 2 * KeyValues() : 0);
  }
  float* Shared() const { return reinterpret_cast<float*>(context_.scratch.shared()); }
  // fp32 sums of dq, dk and dv of the whole batch, in place of the forward pass's y.
  std::array<float*, 3> GradientMemory() const {
    float* memory = Shared();
    return {memory, memory + QueryValues(), memory + QueryValues() + KeyValues()};
  }

  // --- Probabilities ---

  float* StoredAt(const QueryBlock& block) {
    const std::int64_t head = block.image * sizes_.heads + block.head;
    return kept_.data() + (head * sizes_.queries + block.first) * sizes_.keys;
  }
  void Keep(const QueryBlock& block, const float* p) {
    if (kept_.empty()) return;
    float* kept = StoredAt(block);
    for (std::int64_t r = 0; r < block.rows; ++r)
      std::copy_n(p + r * block.width, block.seen, kept + r * sizes_.keys);
  }
  // The inverse; padding, which is not stored, becomes zero.
  void Recall(const QueryBlock& block, float* p) {
    const float* kept = StoredAt(block);
    for (std::int64_t r = 0; r < block.rows; ++r) {
      std::copy_n(kept + r * sizes_.keys, block.seen, p + r * block.width);
      std::fill(p + r * block.width + block.seen, p + (r + 1) * block.width, 0.0f);
    }
  }

  // p of a group from its queries, as it is multiplied; counts: it is measured, and kept.
  float* ProbabilitiesOf(const Pass& pass, const QueryGroup& group, const HeadMemory& m,
                         bool counts) {
    heads_.tensors().LoadQueries(group.front(), HeadGroups::RowsOf(group), m.q);
    heads_.QueriesRounded(pass, AttentionOperand::kSQ, group, m.q, m.q, m, counts);
    float* pr = nullptr;
    for (const QueryBlock& block : group) {
      const HeadMemory at = heads_.At(m, group, block);
      heads_.products().Probabilities(block, at);
      if (counts) Keep(block, at.p);
      pr = RoundProbabilities(pass, block, at, counts) == at.p ? m.p : m.pr;
    }
    return pr;
  }

  // The format in which p is multiplied; null `counts`: nothing is measured.
  float* RoundProbabilities(const Pass& pass, const QueryBlock& block, const HeadMemory& m,
                            bool counts) {
    const bool drops = spec_.dropout > 0 && pass.training;
    if (!drops && !p_stats_.rounds() && !(counts && p_stats_.wanted())) return m.p;
    const float* in = m.p;
    if (drops) scores_.Drop(pass, block, m.p, m.pr), in = m.pr;
    scores_.Round(pass, block, in, 1, m.pr, p_stats_, counts);
    return m.pr;
  }

  // --- Backwards ---

  enum class Purpose : std::uint8_t { kGradients, kScale };
  // Leaves ds in m.dp and queries in m.q, and adds to dv; for a scale nothing else is touched.
  // Probabilities are rounded with the random numbers of the forward pass (their index is the place
  // of the score), so that dv multiplies the p_r that y was made of; they are not counted a second
  // time.
  void ScoreGradients(const Pass& pass, const QueryGroup& group, HeadMemory m, Purpose purpose,
                      int worker) {
    const bool counts = purpose == Purpose::kGradients;
    heads_.tensors().LoadDy(group.front(), HeadGroups::RowsOf(group), m.dy);
    float* pr = nullptr;
    if (kept_.empty()) {
      pr = ProbabilitiesOf(pass, group, m, /*counts=*/false);
    } else {
      for (const QueryBlock& block : group) {
        const HeadMemory at = heads_.At(m, group, block);
        Recall(block, at.p);
        pr = RoundProbabilities(pass, block, at, /*counts=*/false) == at.p ? m.p : m.pr;
      }
    }
    if (!kept_.empty() || heads_.operands().any())
      heads_.tensors().LoadQueries(group.front(), HeadGroups::RowsOf(group), m.q);
    float* const dy = m.dy;
    if (counts) {
      pr = heads_.ScoresRounded(pass, AttentionOperand::kDvP, group, pr, m.pr, m);
      m.dy =
          heads_.QueriesRounded(pass, AttentionOperand::kDvDy, group, dy, m.q_rounded, m, counts);
      for (const QueryBlock& block : group)
        heads_.products().AddValueGradient(
            block, pr + HeadGroups::Before(group, block) * block.width, heads_.At(m, group, block));
    }
    m.dy = heads_.QueriesRounded(pass, AttentionOperand::kDpDy, group, dy, dy, m, counts);
    const float alpha = spec_.rounds_ds ? ScalerOf(Decision::kDs).decision.alpha : 1;
    for (const QueryBlock& block : group) {
      const HeadMemory at = heads_.At(m, group, block);
      heads_.products().ProbabilityGradient(block, at);
      if (spec_.dropout > 0) scores_.Drop(pass, block, at.dp, at.dp);
      heads_.products().ScoreGradient(block, at);
      if (spec_.rounds_ds && counts)
        tails_[Decision::kDs].Add(context_.kernels, at.dp, block.rows * block.width, worker);
      if (ds_stats_.rounds() || (counts && ds_stats_.wanted()))
        scores_.Round(pass, block, at.dp, alpha, at.dp, ds_stats_, counts);
    }
  }

  void FindBackwardScales(const Pass& pass) {
    using enum AttentionOperand;
    heads_.FindScales(pass, {kDvDy, kDpDy, kDpV, kDqK, kDkQ});
    HeadOperands& operands = heads_.operands();
    if (operands.AsksLargest(pass, kDvP)) operands.SetLargest(kDvP, largest_p_);
    if (!operands.AsksLargest(pass, kDqDs) && !operands.AsksLargest(pass, kDkDs)) return;
    const float largest = heads_.LargestOfHeads(
        pass, HeadGroups::Loads::kKeysAndValues, [&](const QueryGroup& group, const HeadMemory& m) {
          ScoreGradients(pass, group, m, Purpose::kScale, 0);
          return heads_.LargestIn(group, m.dp);
        });
    operands.SetLargest(kDqDs, largest), operands.SetLargest(kDkDs, largest);
  }

  // dv and ds are products of dy: decided before it is read.
  void DecideFirst(const Pass& pass) {
    const float scale = *spec_.dy.scale;
    // Where several processes share the batch, all of them ask for moments in this order: each
    // MomentsOfAll is a message.
    TensorMoments dy, p, v;
    const bool looks = Needs(Decision::kDv) || Needs(Decision::kDs);
    if (looks) {
      ADA_CHECK(spec_.dy.moments != nullptr);
      dy = MomentsOfAll(context_, *spec_.dy.moments, pass.rows * spec_.y.shape.per_image());
      p = MomentsOfAll(context_, p_moments_,
                       pass.rows * sizes_.heads * sizes_.queries * sizes_.keys);
    }
    if (Needs(Decision::kDs)) v = PartMoments(pass, 2);
    Decide(Decision::kDv, looks ? ObservationOf(dy, p) : scaling::Observation{}, scale);
    if (spec_.rounds_ds)
      Decide(Decision::kDs,
             looks ? ObservationOf(dy, ProductMoments(p, v)) : scaling::Observation{}, scale);
    *spec_.ds_scale = spec_.rounds_ds ? ScalerOf(Decision::kDs).decision.scale_out : scale;
    if (spec_.rounds_ds) tails_[Decision::kDs].Begin(&ScalerOf(Decision::kDs));
  }
  // dq and dk are products of ds as it is stored, and of keys and queries times 1 / sqrt(width).
  void DecideLast(const Pass& pass) {
    TensorMoments ds;
    if (Needs(Decision::kDq) || Needs(Decision::kDk))
      ds = MomentsOfAll(context_, ds_moments_,
                        pass.rows * sizes_.heads * sizes_.queries * sizes_.keys);
    const auto decide = [&](Decision decision, std::size_t part) {
      scaling::Observation seen;
      if (Needs(decision))
        seen = ObservationOf(ds, Times(PartMoments(pass, part), sizes_.factor()));
      Decide(decision, seen, *spec_.ds_scale);
    };
    decide(Decision::kDq, 1);
    decide(Decision::kDk, 0);
  }
  // Whether this pass's decision needs moments: less often than MayNeed tells, because a rule may
  // keep its value for several passes.
  bool Needs(Decision decision) const {
    if (decision == Decision::kDs && !spec_.rounds_ds) return false;
    return scaling::NeedsOf(ScalerOf(decision)).moments;
  }
  void Decide(Decision decision, const scaling::Observation& seen, float scale) {
    scaling::Decide(ScalerOf(decision), seen, scale);
  }
  // Gives the moments of queries (part 0), keys (1) or values (2).
  TensorMoments PartMoments(const Pass& pass, std::size_t part) const {
    return MomentsOfPart(context_, heads_.tensors().TensorOf(part), heads_.tensors().FirstOf(part),
                         heads_.tensors().ChannelsOf(part), pass.rows);
  }

  // --- Results ---

  // dx of queries, keys or values: alpha times the fp32 sums, rounded once.
  void RoundGradient(const Pass& pass, std::size_t part, Decision decision, const float* raw) {
    if (!spec_.dx[part]) return;
    scaling::LayerScaler& scaler = ScalerOf(decision);
    *spec_.dx[part].scale = scaler.decision.scale_out;
    tails_[decision].Begin(&scaler);
    RoundWhole(pass, raw, scaler.decision.alpha, spec_.dx[part].tensor, dx_stats_[part],
               &tails_[decision]);
    tails_[decision].Finish(&scaler);
  }
  // out = round(values * factor), block by block; `tail` (null: nobody asks) observes the values
  // before the factor.
  void RoundWhole(const Pass& pass, const float* values, float factor, const Tensor& out,
                  RoundingStats& stats, TailCounter* tail) const {
    const std::int64_t per_image = out.shape.per_image();
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                const float* from = values + image * per_image;
                if (tail != nullptr) tail->Add(context_.kernels, from, n * per_image, worker);
                context_.kernels.round(from, factor, At(out, image), n * per_image,
                                       stats.For(pass, block));
              });
    stats.Finish(pass);
  }

  Context context_;
  AttentionSpec spec_;
  AttentionSizes sizes_;
  HeadGroups heads_;
  ScoreRounding scores_;
  RoundingStats y_stats_, p_stats_, ds_stats_, dx_stats_[3];
  TensorMoments p_moments_, ds_moments_;
  float largest_p_ = 0;                             // of the last Forward, where a scale asks
  std::array<TailCounter, 4> tails_;                // by Decision
  std::vector<scaling::AccumulatorCounts> counts_;  // by rule, then by head of keys
  std::vector<float, PageAllocator<float>> kept_;   // [images, heads, queries, keys]
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const AttentionSpec& s) {
  return std::make_unique<CpuAttention>(c, s);
}

}  // namespace ada::backend::cpu
