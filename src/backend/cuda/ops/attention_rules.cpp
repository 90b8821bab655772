// See attention_rules.h.
#include "backend/cuda/ops/attention_rules.h"

#include "error.h"

namespace ada::backend::cuda {
namespace {

// Values of this process's part of the batch, where an image has `each`.
double ValuesOfImages(const Pass& pass, std::int64_t each) {
  return static_cast<double>(pass.rows) * static_cast<double>(each);
}

}  // namespace

AttentionRules::MomentsOfAll::MomentsOfAll(const Context& context)
    : stream_(context.stream), link_(RulesLink(context.link)) {
  if (link_ == nullptr) return;
  part_ = context.Allocate<MomentsPart>(MomentsHere::kMost);
  parts_ = context.Allocate<MomentsPart>(std::int64_t{MomentsHere::kMost} * link_->ranks());
  joined_ = context.Allocate<TensorMoments>(MomentsHere::kMost);
}

void AttentionRules::MomentsOfAll::Join(const MomentsHere& here) {
  here_ = here;
  if (link_ == nullptr) return;
  // Parts travel with the number of values that they are of, so that means are weighted by it.
  ForEach(stream_, MomentsHere::kMost, PutMoments{here, part_});
  link_->AllGatherInStream(part_, MomentsHere::kMost * sizeof(MomentsPart), parts_);
  ForEach(stream_, MomentsHere::kMost, JoinMomentsOfAll{here, parts_, link_->ranks(), joined_});
}

AttentionRules::AttentionRules(const Context& context, const AttentionSpec& spec,
                               const AttentionSizes& sizes, Storage operands)
    : context_(context),
      spec_(spec),
      sizes_(sizes),
      rules_{RuleOf(Decision::kDv), RuleOf(Decision::kDs), RuleOf(Decision::kDq),
             RuleOf(Decision::kDk)},
      moments_first_(context),
      moments_last_(context),
      finished_(context.AllocateZeroed<std::uint32_t>(1)) {
  // Moments of p are taken in the forward pass, for decisions of the backward pass that follows.
  const bool looks_first = rules_[Decision::kDv].looks() || rules_[Decision::kDs].looks();
  if (looks_first) p_moments_ = context.Allocate<TensorMoments>(1);
  if (!spec.dy) return;
  const bool looks_last = rules_[Decision::kDq].looks() || rules_[Decision::kDk].looks();
  if (looks_last) ds_moments_ = context.Allocate<TensorMoments>(1);
  if (looks_first) ADA_CHECK(spec.dy.moments != nullptr);
  if (rules_[Decision::kDs].looks()) part_stats_[2] = PartStats(2, operands);
  if (rules_[Decision::kDq].looks()) part_stats_[1] = PartStats(1, operands);
  if (rules_[Decision::kDk].looks()) part_stats_[0] = PartStats(0, operands);
}

// A rule without a scaler decides nothing: ds where it is not rounded.
WithinRule AttentionRules::RuleOf(Decision decision) const {
  const bool decides = decision != Decision::kDs || spec_.rounds_ds;
  return {context_, decides ? spec_.scalers[decision] : nullptr};
}

// Statistics are taken as if scores were one tensor, which never is in memory: its address is read
// by nobody.
Tensor AttentionRules::Scores(const NumberFormat& format, Storage storage) const {
  static std::byte nothing;
  Tensor tensor;
  tensor.shape = {spec_.y.shape.n, sizes_.heads, sizes_.queries, sizes_.keys};
  tensor.format = format, tensor.storage = storage, tensor.data = &nothing;
  return tensor;
}

RoundingStats AttentionRules::ProbabilityStats(Storage storage, int most_blocks) const {
  return {context_,
          Scores(spec_.rounds_p ? spec_.p_format : kFp32, storage),
          spec_.rounds_p ? spec_.p_style : RoundingStyle{},
          spec_.p_stats,
          p_moments_,
          most_blocks};
}

RoundingStats AttentionRules::GradientStats(Storage storage, int most_blocks) const {
  TensorStats* const stats = spec_.rounds_ds ? spec_.ds_stats : nullptr;
  const Tensor scores = Scores(spec_.ds_format, storage);
  if (spec_.ds_scale == nullptr)
    return {context_, scores, spec_.ds_style, stats, ds_moments_, most_blocks};
  Gradient ds;
  ds.tensor = scores, ds.style = spec_.ds_style, ds.stats = stats;
  ds.scale = spec_.ds_scale, ds.moments = ds_moments_;
  return {context_, ds, most_blocks};
}

// The tensor's values are those that packs read, part by part: its address is read by nobody.
RoundingStats AttentionRules::PartStats(std::size_t part, Storage operands) {
  Tensor tensor;
  tensor.shape = {spec_.y.shape.n, 1, 1, sizes_.ValuesOfPart(part)};
  tensor.storage = operands, tensor.data = spec_.y.data;
  part_moments_[part] = context_.Allocate<TensorMoments>(1);
  return {context_, tensor, {}, nullptr, part_moments_[part]};
}

void AttentionRules::DecideEarly() {
  if (spec_.dy.moments == nullptr || p_moments_ == nullptr || moments_first_.joins()) return;
  // Without other processes a pass changes nothing of the arguments.
  next_ = context_.next_decisions.Add({{}, First(Pass())}, spec_.dy.moments, spec_.dy.scale);
}

DecideBothKernel AttentionRules::First(const Pass& pass) {
  if (p_moments_ != nullptr)
    moments_first_.Join({{spec_.dy.moments, p_moments_, part_moments_[2]},
                         {ValuesOfImages(pass, spec_.y.shape.per_image()),
                          ValuesOfImages(pass, sizes_.kv_heads * sizes_.Scores()),
                          ValuesOfImages(pass, sizes_.ValuesOfPart(2))}});
  const TensorMoments *dy = moments_first_.At(0), *p = moments_first_.At(1);
  return {
      {rules_[Decision::kDv].By({dy, p}, spec_.dy.scale, ScaleOf(2)),
       rules_[Decision::kDs].By({dy, p, moments_first_.At(2)}, spec_.dy.scale, spec_.ds_scale)}};
}

DecideBothKernel AttentionRules::Last(const Pass& pass) {
  if (ds_moments_ != nullptr)
    moments_last_.Join({{ds_moments_, part_moments_[1], part_moments_[0]},
                        {ValuesOfImages(pass, sizes_.kv_heads * sizes_.Scores()),
                         ValuesOfImages(pass, sizes_.ValuesOfPart(1)),
                         ValuesOfImages(pass, sizes_.ValuesOfPart(0))}});
  const TensorMoments* ds = moments_last_.At(0);
  const double factor = sizes_.factor();
  return {{rules_[Decision::kDq].By({ds, moments_last_.At(1), nullptr, factor}, spec_.ds_scale,
                                    ScaleOf(0)),
           rules_[Decision::kDk].By({ds, moments_last_.At(2), nullptr, factor}, spec_.ds_scale,
                                    ScaleOf(1))}};
}

}  // namespace ada::backend::cuda
