// Layers of sequences, for which this backend has no kernels: they are refused by name.
#include "backend/cuda/ops/ops.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

template <class Spec>
std::unique_ptr<Op> Refuse(const Spec& spec) {
  throw ConfigError("layer " + spec.layer + ": kind " + Spec::kKind +
                    " runs on the CPU alone; set device.kind: cpu");
}

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context&, const RmsNormSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const EmbeddingSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const PositionEmbeddingSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const ClassTokenSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const RopeSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const AttentionSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const SelectSpec& s) {
  return Refuse(s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context&, const SoftmaxSpec& s) {
  return Refuse(s);
}

}  // namespace ada::backend::cuda
