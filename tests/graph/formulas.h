// The formula of each op as text: what symbols.h hashes. Names and numbers of a spec, no tensors.
#pragma once
#include <string>

#include "backend/backend.h"
#include "graph/symbols.h"

namespace ada::graph::test {

inline std::string Formula(const backend::Conv2dSpec& s) {
  return Numbers("conv2d",
                 {1.0 * s.stride[0], 1.0 * s.stride[1], 1.0 * s.padding[0], 1.0 * s.padding[1],
                  1.0 * s.dilation[0], 1.0 * s.dilation[1], 1.0 * s.groups});
}
inline std::string Formula(const backend::ConvTranspose2dSpec& s) {
  return Numbers("conv_transpose2d",
                 {1.0 * s.stride[0], 1.0 * s.stride[1], 1.0 * s.padding[0], 1.0 * s.padding[1],
                  1.0 * s.dilation[0], 1.0 * s.dilation[1], 1.0 * s.groups});
}
inline std::string Formula(const backend::LinearSpec&) { return "linear"; }
template <typename PoolSpec>
std::string PoolFormula(const char* name, const PoolSpec& s) {
  return Numbers(name, {1.0 * s.kernel[0], 1.0 * s.kernel[1], 1.0 * s.stride[0], 1.0 * s.stride[1],
                        1.0 * s.padding[0], 1.0 * s.padding[1]});
}
inline std::string Formula(const backend::MaxPoolSpec& s) { return PoolFormula("max_pool", s); }
inline std::string Formula(const backend::MaxUnpoolSpec& s) {
  return PoolFormula("max_unpool", s) + ToString(s.pooled);
}
inline std::string Formula(const backend::L2NormalizeSpec& s) {
  return Numbers("l2_normalize", {s.eps});
}
inline std::string Formula(const backend::LrnSpec& s) {
  return Numbers("lrn", {1.0 * s.size, s.alpha, s.beta, s.k});
}
inline std::string Formula(const backend::ConcatBoxesSpec&) { return "concat_boxes"; }
inline std::string Formula(const backend::AvgPoolSpec& s) {
  if (s.adaptive) return "adaptive_avg_pool";
  return PoolFormula("avg_pool", s) + (s.count_padding ? "" : " inside");
}
inline std::string Formula(const backend::UpsampleSpec& s) {
  return Numbers("upsample", {1.0 * s.scale});
}
inline std::string Formula(const backend::BilinearSpec& s) {
  return s.align_corners ? "bilinear, corners" : "bilinear";
}
inline std::string Formula(const backend::PixelShuffleSpec& s) {
  return Numbers("pixel_shuffle", {1.0 * s.scale});
}
inline std::string Formula(const backend::StochasticDepthSpec& s) {
  return Numbers(s.batch ? "stochastic_depth batch" : "stochastic_depth row", {s.rate}) +
         std::to_string(s.stream);
}
inline std::string Formula(const backend::LayerNormSpec& s) {
  return Numbers("layer_norm", {s.eps});
}
inline std::string Formula(const backend::GroupNormSpec& s) {
  return Numbers("group_norm", {1.0 * s.groups, s.eps});
}
inline std::string Formula(const backend::ReluSpec&) { return "relu"; }
template <class Function>
std::string Formula(const backend::ActivationSpec<Function>&) {
  return Function::kKind;
}
inline std::string Formula(const backend::ActivationSpec<backend::Hardtanh>& s) {
  return Numbers("hardtanh", {s.function.min, s.function.max});
}
inline std::string Formula(const backend::ActivationSpec<backend::LeakyRelu>& s) {
  return Numbers("leaky_relu", {s.function.slope});
}
inline std::string Formula(const backend::ActivationSpec<backend::Softplus>& s) {
  return Numbers("softplus", {s.function.beta, s.function.threshold});
}
inline std::string Formula(const backend::ActivationSpec<backend::Elu>& s) {
  return Numbers("elu", {s.function.alpha});
}
inline std::string Formula(const backend::ActivationSpec<backend::GeluTanh>&) {
  return "gelu tanh";
}
inline std::string Formula(const backend::ConcatSpec&) { return "concat"; }
inline std::string Formula(const backend::FlattenSpec&) { return "flatten"; }
inline std::string Formula(const backend::ShortcutSpec& s) {
  return Numbers("shortcut", {1.0 * s.stride[0], 1.0 * s.stride[1]});
}
inline std::string Formula(const backend::SliceSpec& s) {
  return Numbers("slice", {1.0 * s.first});
}
inline std::string Formula(const backend::DropoutSpec& s) {
  return Numbers("dropout", {s.rate}) + std::to_string(s.stream);
}
inline std::string Formula(const backend::BatchNormSpec& s) {
  return Numbers("batch_norm", {s.eps, s.momentum});
}
inline std::string Formula(const backend::ScaleSpec&) { return "scale"; }

}  // namespace ada::graph::test
