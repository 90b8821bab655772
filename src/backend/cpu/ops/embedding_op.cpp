// Embeddings: rows of a weight by token, and the sums of their gradients.
#include <algorithm>
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {
namespace {

// The op of an EmbeddingSpec: tokens are 32-bit whole numbers in the storage of fp32, which are not
// checked against the vocabulary here. The weight is read as the fp32 master, without a rounded
// copy.
class CpuEmbedding final : public Op {
 public:
  CpuEmbedding(const Context& context, const EmbeddingSpec& spec)
      : context_(context),
        spec_(spec),
        channels_(spec.w.shape.c),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dw_stats_(RoundingStats::OfParameter(spec.dw_format, spec.w.shape.numel(), spec.dw_style,
                                             spec.dw_stats)) {
    context.scratch.Reserve(
        // A worker gathers a block of y, or holds the sum of a token's row and the row that is
        // added.
        std::max(BlockValues(spec.y.shape), static_cast<std::size_t>(2 * channels_)) *
            sizeof(float),
        0);
    if (!spec.dw) return;
    first_.resize(static_cast<std::size_t>(spec.w.shape.n) + 1);
    places_.resize(static_cast<std::size_t>(spec.x.shape.numel()));
    context.scratch.CountOwn(static_cast<std::ptrdiff_t>((first_.size() + places_.size()) * 4));
  }

  void Forward(const Pass& pass) override {
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* values = reinterpret_cast<float*>(context_.scratch.worker(worker));
                const std::int32_t* tokens = Tokens() + image * spec_.x.shape.per_image();
                const std::int64_t places = n * spec_.x.shape.per_image();
                for (std::int64_t i = 0; i < places; ++i)
                  std::copy_n(spec_.w.f32() + tokens[i] * channels_, channels_,
                              values + i * channels_);
                context_.kernels.round(values, 1.0f, At(spec_.y, image), places * channels_,
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }

  void Backward(const Pass& pass) override {
    if (!spec_.dw) return;
    SortPlaces(pass.rows * spec_.x.shape.per_image());
    const std::int64_t tokens = spec_.w.shape.n;
    // Workers take ranges of the vocabulary, so that each row of dw is written by one of them and
    // its places are added in their order, whatever the number of threads.
    const std::int64_t each = std::max<std::int64_t>(1, kSegment / channels_);
    context_.pool.For((tokens + each - 1) / each, [&](std::int64_t i, int worker) {
      const std::int64_t end = std::min((i + 1) * each, tokens);
      for (std::int64_t token = i * each; token < end; ++token) SumToken(pass, token, worker);
    });
    // Where processes share the batch, dw is rounded after the sum over processes, by a call of the
    // graph.
    if (!pass.part) FinishGradients(pass);
  }

  void FinishGradients(const Pass& pass) override {
    if (!spec_.dw) return;
    ForSegments(context_, spec_.w.shape.numel(),
                [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                  dw_stats_.RoundInPlace(context_.kernels, pass, segment, spec_.dw.f32() + first,
                                         n);
                });
    dw_stats_.Finish(pass);
  }

 private:
  const std::int32_t* Tokens() const { return reinterpret_cast<const std::int32_t*>(spec_.x.data); }

  // The places of each token, in their order: those of token t are first_[t] .. first_[t + 1].
  // Counting sort: counts become ends, and places, taken from the last on, move them down to
  // beginnings.
  void SortPlaces(std::int64_t count) {
    const std::int32_t* tokens = Tokens();
    std::fill(first_.begin(), first_.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) ++first_[static_cast<std::size_t>(tokens[i])];
    std::int32_t sum = 0;
    for (std::int32_t& first : first_) {
      sum += first;
      first = sum;  // the end, of which the places below count down
    }
    for (std::int64_t i = count; i-- > 0;)
      places_[static_cast<std::size_t>(--first_[static_cast<std::size_t>(tokens[i])])] =
          static_cast<std::int32_t>(i);
  }

  // Writes one row of dw: the sum of dy in fp32 over the places of the token, then over S.
  void SumToken(const Pass& pass, std::int64_t token, int worker) {
    const bool adds = pass.accumulate || spec_.adds_dw;
    float* dw = spec_.dw.f32() + token * channels_;
    const std::int32_t begin = first_[static_cast<std::size_t>(token)];
    const std::int32_t end = first_[static_cast<std::size_t>(token) + 1];
    if (begin == end) {
      // A token without a place has a zero gradient, or what an earlier micro-batch or the tied
      // head left there.
      if (!adds) std::fill_n(dw, channels_, 0.0f);
      return;
    }
    auto* sum = reinterpret_cast<float*>(context_.scratch.worker(worker));
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int64_t place = places_[static_cast<std::size_t>(i)];
      const TensorSpan dy = Advance(At(spec_.dy.tensor, 0), place * channels_);
      float* row = i == begin ? sum : sum + channels_;
      context_.kernels.widen(dy, row, channels_);
      if (i > begin) context_.kernels.accumulate(row, sum, channels_);
    }
    context_.kernels.unscale(sum, *spec_.dy.scale, adds, dw, channels_);
  }

  Context context_;
  EmbeddingSpec spec_;
  std::int64_t channels_;
  RoundingStats y_stats_, dw_stats_;
  std::vector<std::int32_t> first_, places_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const EmbeddingSpec& s) {
  return std::make_unique<CpuEmbedding>(c, s);
}

}  // namespace ada::backend::cpu
