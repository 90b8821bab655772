// See fused_attention.h.
#include "backend/cuda/ops/fused_attention.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <type_traits>

#include "backend/cuda/kernels/fused_attention.h"
#include "backend/cuda/kernels/fused_attention_gradient.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops/attention_memory.h"
#include "backend/cuda/ops/attention_rules.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {
namespace {

using Decision = AttentionSpec::Decision;

// A head's part `first` .. of the tensor's channels.
HeadOperand OperandOf(const Tensor& tensor, std::int64_t first, const AttentionSizes& sizes) {
  HeadOperand operand;
  operand.span = SpanOf(tensor);
  operand.channels = tensor.shape.c, operand.first = first;
  operand.positions = static_cast<int>(tensor.shape.h * tensor.shape.w);
  operand.width = static_cast<int>(sizes.width);
  const auto begin_on = [&](std::int64_t run) {
    return sizes.width % run == 0 && first % run == 0 && tensor.shape.c % run == 0 &&
           IsOnSixteen(tensor.data);
  };
  operand.vec8 = begin_on(8), operand.vec4 = begin_on(4);
  return operand;
}

// The rounding of a launch's values; without totals where none of them is measured.
Rounding Measured(const RoundingStats& stats, const Pass& pass) {
  Rounding how = stats.For(pass);
  if (stats.Level(pass) == StatsLevel::kNone) how.totals = nullptr;
  return how;
}
// f(std::integral_constant<StatsLevel, level>) for one of the two levels that these kernels have.
template <class Call>
void AtFusedLevel(bool counts, Call&& f) {
  if (counts)
    f(std::integral_constant<StatsLevel, StatsLevel::kCounts>());
  else
    f(std::integral_constant<StatsLevel, StatsLevel::kMoments>());
}
bool CountsAny(const Pass& pass, std::initializer_list<const RoundingStats*> all) {
  return std::any_of(all.begin(), all.end(), [&](const RoundingStats* stats) {
    return stats->Level(pass) == StatsLevel::kCounts;
  });
}

// The op of an AttentionSpec that FusesAttention. Calls only launch.
class FusedAttention final : public Op {
 public:
  FusedAttention(const Context& context, const AttentionSpec& spec)
      : context_(context),
        spec_(spec),
        sizes_(spec),
        operands_(CommonOperands(spec, bool{spec.dy})),
        scores_(ScoresOf(spec, sizes_)),
        v_(PartOf(spec, sizes_, 2)),
        rules_(context, spec, sizes_, operands_),
        p_stats_(rules_.ProbabilityStats(operands_, MostBlocks())),
        y_stats_(context, spec.y, spec.y_style, spec.y_stats, nullptr, MostBlocks()) {
    if (!spec.dy) return;
    spec_.dx.resize(3);
    rules_.DecideEarly();
    ds_stats_ = rules_.GradientStats(operands_, MostBlocks());
    for (std::size_t i = 0; i < 3; ++i) {
      if (!spec_.dx[i]) continue;
      const int blocks = InputGradient<StatsLevel::kMoments>(i, spec.y.shape.n).Blocks();
      dx_stats_[i] = RoundingStats(context, spec_.dx[i], std::max(blocks, kMostStatsBlocks));
    }
    context.scratch.Reserve(2 * MatrixBytes());
  }

  void Forward(const Pass& pass) override {
    AtFusedLevel(CountsAny(pass, {&p_stats_, &y_stats_}), [&](auto level) {
      sizes_.width <= 32   ? LaunchForward<2, level()>(pass)
      : sizes_.width <= 64 ? LaunchForward<4, level()>(pass)
                           : LaunchForward<8, level()>(pass);
    });
  }

  void Backward(const Pass& pass) override {
    if (!spec_.dx[0] && !spec_.dx[1] && !spec_.dx[2]) return;
    rules_.LaunchFirst(pass);
    AtFusedLevel(CountsAny(pass, {&ds_stats_}), [&](auto level) {
      const FusedScoreGradientKernel<level()> kernel = {scores_,
                                                        v_,
                                                        OperandOf(spec_.dy.tensor, 0, sizes_),
                                                        p_stats_.For(pass),
                                                        Measured(ds_stats_, pass),
                                                        Mask(pass, true),
                                                        Matrix(0),
                                                        Matrix(1),
                                                        rules_[Decision::kDs].alpha()};
      rules_.LaunchLast(pass, kernel, BlocksOf(pass.rows));
    });
    AtFusedLevel(CountsAny(pass, {&dx_stats_[0], &dx_stats_[1], &dx_stats_[2]}), [&](auto level) {
      FusedKernels<FusedInputGradientKernel<level()>, 3> all;
      for (std::size_t i = 0; i < 3; ++i) {
        if (!spec_.dx[i]) continue;
        FusedInputGradientKernel<level()> kernel = InputGradient<level()>(i, pass.rows);
        kernel.how = Measured(dx_stats_[i], pass);
        all.Add(kernel, kernel.Blocks());
      }
      Launch(context_.stream, all, all.blocks());
    });
  }

 private:
  static HeadOperand PartOf(const AttentionSpec& spec, const AttentionSizes& sizes,
                            std::size_t part) {
    return OperandOf(spec.x[spec.fused() ? 0 : part], sizes.FirstOf(part), sizes);
  }
  static FusedScores ScoresOf(const AttentionSpec& spec, const AttentionSizes& sizes) {
    return {PartOf(spec, sizes, 0),
            PartOf(spec, sizes, 1),
            static_cast<int>(sizes.heads),
            static_cast<int>(sizes.kv_heads),
            static_cast<int>(sizes.queries),
            static_cast<int>(sizes.keys),
            sizes.causal,
            static_cast<float>(sizes.factor())};
  }
  int BlocksOf(std::int64_t images) const {
    return static_cast<int>(images * sizes_.heads * scores_.RowBlocks());
  }
  int MostBlocks() const { return BlocksOf(spec_.y.shape.n); }

  ScoreMask Mask(const Pass& pass, bool drops) const {
    const float rate = drops ? spec_.dropout : 0;
    return {context_.pass, spec_.stream, rate, 1.0f / (1.0f - rate),
            pass.first_row * sizes_.kv_heads * sizes_.Scores()};
  }
  // With y moments are taken for the decisions of the backward pass: together, but where y is
  // counted, as that takes a thread's registers.
  template <int kValues, StatsLevel kLevel>
  void LaunchForward(const Pass& pass) const {
    const FusedAttentionKernel<kValues, kLevel> rows = {scores_,
                                                        v_,
                                                        Measured(p_stats_, pass),
                                                        Measured(y_stats_, pass),
                                                        Mask(pass, pass.training),
                                                        SpanOf(spec_.y)};
    const Parts parts = MeasuredParts(pass);
    const int blocks = BlocksOf(pass.rows);
    if constexpr (kLevel == StatsLevel::kCounts) {
      Launch(context_.stream, rows, blocks);
      Launch(context_.stream, parts, parts.blocks());
    } else {
      Launch(context_.stream, FusedPair<std::decay_t<decltype(rows)>, Parts>{rows, parts, blocks},
             blocks + parts.blocks());
    }
  }

  // Queries, keys and values that a rule looks at; nothing is copied.
  using Parts = FusedKernels<PackHeadsKernel<StatsLevel::kMoments>, 3>;
  Parts MeasuredParts(const Pass& pass) const {
    Parts all;
    for (std::size_t part = 0; part < 3 && pass.training; ++part) {
      const RoundingStats& stats = rules_.part(part);
      if (!stats.wanted()) continue;
      const Tensor& tensor = spec_.x[spec_.fused() ? 0 : part];
      HeadShape shape = part == 0 ? sizes_.Queries() : sizes_.Keys();
      shape.channels = static_cast<std::uint32_t>(tensor.shape.c);
      shape.first = static_cast<std::uint32_t>(sizes_.FirstOf(part));
      const Rounding how = stats.For(pass);
      const FlatBlocks flat = FlatBlocksOf(how.values);
      all.Add({{how, how.values, flat.size}, SpanOf(tensor), {}, shape, shape.vec4()}, flat.blocks);
    }
    return all;
  }

  // Rounded probabilities (0) and gradients of scores (1) of the batch, in scratch memory.
  std::size_t MatrixBytes() const {
    return Aligned(static_cast<std::size_t>(spec_.y.shape.n * sizes_.heads * sizes_.queries) *
                   static_cast<std::size_t>(ScoreMatrix::PitchOf(scores_.keys)) *
                   BytesOf(operands_));
  }
  ScoreMatrix Matrix(std::size_t which) const {
    return {{context_.scratch.data() + which * MatrixBytes(), operands_},
            ScoreMatrix::PitchOf(scores_.keys)};
  }

  // The gradient of queries (0), keys (1) or values (2), without its rounding.
  template <StatsLevel kLevel>
  FusedInputGradientKernel<kLevel> InputGradient(std::size_t part, std::int64_t images) const {
    FusedInputGradientKernel<kLevel> kernel{};
    kernel.scores = Matrix(part == 2 ? 0 : 1);
    kernel.with = part == 0   ? scores_.k
                  : part == 1 ? scores_.q
                              : OperandOf(spec_.dy.tensor, 0, sizes_);
    kernel.out = SpanOf(spec_.dx[part].tensor);
    kernel.along_queries = part != 0;
    kernel.heads = part == 0 ? scores_.heads : scores_.kv_heads;
    kernel.readers = scores_.heads / scores_.kv_heads;
    kernel.queries = scores_.queries, kernel.keys = scores_.keys, kernel.causal = scores_.causal;
    kernel.items = static_cast<std::uint32_t>(kernel.Items(images));
    kernel.factor = part == 2 ? 1 : scores_.factor;
    constexpr std::array<Decision, 3> kDecisions = {Decision::kDq, Decision::kDk, Decision::kDv};
    kernel.alpha = rules_[kDecisions[part]].alpha();
    return kernel;
  }

  Context context_;
  AttentionSpec spec_;
  AttentionSizes sizes_;
  Storage operands_;
  FusedScores scores_;
  HeadOperand v_;
  AttentionRules rules_;
  RoundingStats p_stats_, y_stats_, ds_stats_;
  std::array<RoundingStats, 3> dx_stats_;  // of queries, keys, values
};

}  // namespace

bool FusesAttention(const Context& context, const AttentionSpec& spec) {
  const CudaSwitches& switches = context.stream.switches();
  if (!switches.attention || !switches.fused || spec.keeps_probabilities) return false;
  const AttentionSizes sizes(spec);
  const std::int64_t scores = spec.y.shape.n * sizes.kv_heads * sizes.Scores();
  if (sizes.keys > kMostFusedKeys || sizes.width > kMostFusedWidth || scores > switches.scores)
    return false;
  const Storage operands = CommonOperands(spec, bool{spec.dy});
  const auto fits = [&](const Tensor& tensor) { return tensor.storage == operands; };
  if (operands == Storage::kF32 || !std::all_of(spec.x.begin(), spec.x.end(), fits)) return false;
  // Kernels that count have room for the counts of all that they round.
  if (spec.p_stats == nullptr || spec.y_stats == nullptr) return false;
  if (!spec.dy) return true;
  const auto counted = [](const Gradient& g) { return !g || g.stats != nullptr; };
  const auto observed = [&](const scaling::LayerScaler* scaler) {
    return scaler != nullptr &&
           context.Host(scaler)->rule.method == scaling::LayerMethod::kExactRange;
  };
  return fits(spec.dy.tensor) && spec.ds_stats != nullptr &&
         std::all_of(spec.dx.begin(), spec.dx.end(), counted) &&
         std::none_of(spec.scalers.begin(), spec.scalers.end(), observed);
}

std::unique_ptr<Op> MakeFusedAttention(const Context& context, const AttentionSpec& spec) {
  return std::make_unique<FusedAttention>(context, spec);
}

}  // namespace ada::backend::cuda
