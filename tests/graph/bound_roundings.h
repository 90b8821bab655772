// The roundings in the specs that a fake backend was given, by their stream.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "graph/fake_backend.h"
#include "graph/graph.h"

namespace ada::graph::test {

struct BoundRounding {
  NumberFormat format;
  bool stochastic = false;
  std::string scaled;  // the name of the tensor whose per-tensor scale it has; "": none
  friend bool operator==(const BoundRounding&, const BoundRounding&) = default;
};

class BoundRoundingReader {
 public:
  BoundRoundingReader(const FakeBackend& backend, const Graph& graph) {
    for (const ScaledTensor& tensor : graph.scaled_tensors())
      names_[tensor.scale->per_tensor_scale.backend] = tensor.name();
    for (const auto& s : backend.inputs) Add(s.y_style, s.y.format, &s.y);
    for (const backend::OpSpec& spec : backend.specs)
      std::visit([this](const auto& s) { AddOp(s); }, spec);
    for (const backend::LossSpec& loss : backend.losses)
      for (const LossEnd& end : EndsOf(loss)) AddGradient(end.gradient);
  }
  std::map<std::uint64_t, BoundRounding> Take() { return std::move(all_); }

 private:
  // `stored`: the tensor it goes to, where that keeps exactly what was rounded.
  void Add(const backend::RoundingStyle& style, const NumberFormat& format, const Tensor* stored) {
    REQUIRE(style.stream != 0);
    if (style.per_tensor_scale && stored) CHECK(stored->storage == Storage::kF32);
    if (!style.per_tensor_scale && stored) CHECK(stored->storage == StorageFor(format));
    BoundRounding bound{format, style.stochastic, ""};
    if (style.per_tensor_scale) bound.scaled = names_.at(style.per_tensor_scale);
    CHECK(all_.emplace(style.stream, bound).second);
  }
  void AddGradient(const Gradient& gradient) {
    if (gradient.stats) Add(gradient.style, gradient.tensor.format, &gradient.tensor);
  }
  void AddOp(const backend::LayerSpec& s) { AddGradient(s.dx); }
  void AddOp(const backend::RoundedLayerSpec& s) {
    Add(s.y_style, s.y.format, &s.y);
    AddGradient(s.dx);
  }
  void AddOp(const backend::MatmulSpec& s) {
    AddOp(static_cast<const backend::RoundedLayerSpec&>(s));
    Add(s.w_style, s.w_format, nullptr);
    if (s.dw) Add(s.dw_style, s.dw_format, nullptr);
  }
  void AddOp(const backend::AddSpec& s) { Add(s.y_style, s.y.format, &s.y); }
  void AddOp(const backend::ConcatSpec& s) { Add(s.y_style, s.y.format, &s.y); }
  void AddOp(const backend::MultiplySpec& s) {
    Add(s.y_style, s.y.format, &s.y);
    for (const Gradient& dx : s.dx) AddGradient(dx);
  }
  void AddOp(const backend::AttentionSpec& s) {
    Add(s.y_style, s.y.format, &s.y);
    if (s.rounds_p) Add(s.p_style, s.p_format, nullptr);
    if (s.dy && s.rounds_ds) Add(s.ds_style, s.ds_format, nullptr);
    for (const Gradient& dx : s.dx) AddGradient(dx);
  }
  void AddOp(const backend::BranchSumSpec& s) { AddGradient(s.sum); }
  void AddOp(const backend::BatchNormSpec& s) {
    if (!s.addend) CHECK(s.out.format == s.y_format);
    Add(s.y_style, s.y_format, s.addend ? nullptr : &s.out);
    if (s.addend) Add(s.sum_style, s.out.format, &s.out);
    AddGradient(s.dx);
  }

  std::map<const scaling::TensorScaler*, std::string> names_;
  std::map<std::uint64_t, BoundRounding> all_;
};

inline std::map<std::uint64_t, BoundRounding> BoundRoundings(const FakeBackend& backend,
                                                             const Graph& graph) {
  return BoundRoundingReader(backend, graph).Take();
}

}  // namespace ada::graph::test
