// Products on oneDNN; see fp32_matmul.h. The only file that includes oneDNN.
#include <algorithm>
#include <cstddef>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "backend/cpu/matmul/plan/bf16_matmul.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "error.h"

// The one place that knows how oneDNN 2.x (operation descriptors) and 3.x (none) make primitive
// descriptors. Everything else of the two versions that is used here is the same.
namespace ada::backend::cpu::onednn {

struct ConvolutionShape {
  dnnl::memory::desc x, w, b, y;  // b zero: no bias
  dnnl::memory::dims stride, dilation, pad_before, pad_after;
};

// Scratch memory is the caller's: the library would allocate it for each primitive otherwise.
inline dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

#if DNNL_VERSION_MAJOR >= 3

inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const ConvolutionShape& s) {
  return dnnl::convolution_forward::primitive_desc(e, kind, dnnl::algorithm::convolution_direct,
                                                   s.x, s.w, s.b, s.y, s.stride, s.dilation,
                                                   s.pad_before, s.pad_after, UserScratchpad());
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                   const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(
      e, dnnl::algorithm::convolution_direct, s.x, s.w, s.y, s.stride, s.dilation, s.pad_before,
      s.pad_after, hint, UserScratchpad());
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                      const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(
      e, dnnl::algorithm::convolution_direct, s.x, s.w, s.b, s.y, s.stride, s.dilation,
      s.pad_before, s.pad_after, hint, UserScratchpad());
}
inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::inner_product_forward::primitive_desc(e, kind, x, w, b, y, UserScratchpad());
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                   const dnnl::memory::desc& w, const dnnl::memory::desc& y,
                                   const dnnl::inner_product_forward::primitive_desc& hint) {
  return dnnl::inner_product_backward_data::primitive_desc(e, x, w, y, hint, UserScratchpad());
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                      const dnnl::memory::desc& w, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& y,
                                      const dnnl::inner_product_forward::primitive_desc& hint) {
  return dnnl::inner_product_backward_weights::primitive_desc(e, x, w, b, y, hint,
                                                              UserScratchpad());
}
inline auto MatmulDescriptor(const dnnl::engine& e, const dnnl::memory::desc& a,
                             const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::matmul::primitive_desc(e, a, b, y, UserScratchpad());
}

#else

inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const ConvolutionShape& s) {
  const dnnl::convolution_forward::desc operation(kind, dnnl::algorithm::convolution_direct, s.x,
                                                  s.w, s.b, s.y, s.stride, s.dilation, s.pad_before,
                                                  s.pad_after);
  return dnnl::convolution_forward::primitive_desc(operation, UserScratchpad(), e);
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                   const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_data::desc operation(dnnl::algorithm::convolution_direct, s.x,
                                                        s.w, s.y, s.stride, s.dilation,
                                                        s.pad_before, s.pad_after);
  return dnnl::convolution_backward_data::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const ConvolutionShape& s,
                                      const dnnl::convolution_forward::primitive_desc& hint) {
  const dnnl::convolution_backward_weights::desc operation(dnnl::algorithm::convolution_direct, s.x,
                                                           s.w, s.b, s.y, s.stride, s.dilation,
                                                           s.pad_before, s.pad_after);
  return dnnl::convolution_backward_weights::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto ForwardDescriptor(const dnnl::engine& e, dnnl::prop_kind kind,
                              const dnnl::memory::desc& x, const dnnl::memory::desc& w,
                              const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  const dnnl::inner_product_forward::desc operation(kind, x, w, b, y);
  return dnnl::inner_product_forward::primitive_desc(operation, UserScratchpad(), e);
}
inline auto BackwardDataDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                   const dnnl::memory::desc& w, const dnnl::memory::desc& y,
                                   const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_data::desc operation(x, w, y);
  return dnnl::inner_product_backward_data::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto BackwardWeightsDescriptor(const dnnl::engine& e, const dnnl::memory::desc& x,
                                      const dnnl::memory::desc& w, const dnnl::memory::desc& b,
                                      const dnnl::memory::desc& y,
                                      const dnnl::inner_product_forward::primitive_desc& hint) {
  const dnnl::inner_product_backward_weights::desc operation(x, w, b, y);
  return dnnl::inner_product_backward_weights::primitive_desc(operation, UserScratchpad(), e, hint);
}
inline auto MatmulDescriptor(const dnnl::engine& e, const dnnl::memory::desc& a,
                             const dnnl::memory::desc& b, const dnnl::memory::desc& y) {
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, y), UserScratchpad(), e);
}

#endif

}  // namespace ada::backend::cpu::onednn

namespace ada::backend::cpu {

using dnnl::memory;

class WeightLayout {
 public:
  explicit WeightLayout(const memory::desc& description) : description_(description) {}
  const memory::desc& description() const { return description_; }

 private:
  memory::desc description_;
};

namespace {

const dnnl::engine& Engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}
constexpr auto kF32 = memory::data_type::f32;
float* Mutable(const float* p) { return const_cast<float*>(p); }  // memory objects take no const

// oneDNN reports every failure as dnnl::error: a lack of memory, memory for generated code that the
// machine refuses (in many words: it then has no implementation, or cannot run one), or a bug here.
template <class Use>
auto Guard(const char* doing, Use&& use) {
  try {
    return use();
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw std::bad_alloc();
    const std::string message = std::string("oneDNN cannot ") + doing + ": " + e.what();
    if (e.status == dnnl_invalid_arguments) throw InternalError(message);
    throw DeviceError(
        message +
        "; it may have been refused memory that holds code: free memory, raise ulimit "
        "-v, or allow processes to make memory executable");
  }
}

memory::dims WeightDims(const MatmulGeometry& g) {
  if (g.linear) {
    if (g.x.h * g.x.w == 1) return {g.w.n, g.w.c};
    return {g.w.n, g.w.c, g.w.h, g.w.w};
  }
  if (g.groups == 1) return {g.w.n, g.w.c, g.w.h, g.w.w};
  return {g.groups, g.w.n / g.groups, g.w.c, g.w.h, g.w.w};
}
memory::format_tag PlainTag(std::size_t dims) {
  return dims == 2   ? memory::format_tag::oi
         : dims == 4 ? memory::format_tag::oihw
                     : memory::format_tag::goihw;
}
memory::desc PlainWeights(const MatmulGeometry& g) {
  const memory::dims dims = WeightDims(g);
  return {dims, kF32, PlainTag(dims.size())};
}
memory::desc AnyWeights(const MatmulGeometry& g) {
  return {WeightDims(g), kF32, memory::format_tag::any};
}
memory::desc Activation(const Shape& s, int images, bool flat) {
  if (flat) return {{images, s.c}, kF32, memory::format_tag::nc};
  return {{images, s.c, s.h, s.w}, kF32, memory::format_tag::nhwc};
}
memory::desc Bias(const MatmulGeometry& g) {
  return g.bias ? memory::desc({g.w.n}, kF32, memory::format_tag::x) : memory::desc();
}

// What convolution and inner product have in common: arguments, memory objects, execution.
template <class Forward_, class Data_, class Weights_>
class OnednnMatmul final : public Matmul {
 public:
  struct Descriptors {
    typename Forward_::primitive_desc forward;
    typename Data_::primitive_desc data;
    typename Weights_::primitive_desc weights;
  };
  OnednnMatmul(const MatmulGeometry& g, const Descriptors& d, const memory::desc& x,
               const memory::desc& y)
      : geometry_(g), stream_(Engine()), forward_(d.forward) {
    x_ = memory(x, Engine(), nullptr);
    y_ = memory(y, Engine(), nullptr);
    if (g.bias) b_ = memory(Bias(g), Engine(), nullptr);
    forward_weights_ = memory(d.forward.weights_desc(), Engine(), nullptr);
    forward_pad_ = memory(d.forward.scratchpad_desc(), Engine(), nullptr);
    forward_layout_ = std::make_shared<WeightLayout>(d.forward.weights_desc());
    scratchpad_ = d.forward.scratchpad_desc().get_size();
    if (g.training) {
      weights_ = Weights_(d.weights);
      gradient_ = memory(d.weights.diff_weights_desc(), Engine(), nullptr);
      weights_pad_ = memory(d.weights.scratchpad_desc(), Engine(), nullptr);
      gradient_layout_ = std::make_shared<WeightLayout>(d.weights.diff_weights_desc());
      scratchpad_ = std::max(scratchpad_, d.weights.scratchpad_desc().get_size());
    }
    if (g.training && g.data_gradient) {
      data_ = Data_(d.data);
      data_weights_ = memory(d.data.weights_desc(), Engine(), nullptr);
      data_pad_ = memory(d.data.scratchpad_desc(), Engine(), nullptr);
      data_layout_ = std::make_shared<WeightLayout>(d.data.weights_desc());
      scratchpad_ = std::max(scratchpad_, d.data.scratchpad_desc().get_size());
    }
  }

  void Forward(const float* x, const float* w, const float* b, float* y, std::byte* pad) override {
    x_.set_data_handle(Mutable(x));
    y_.set_data_handle(y);
    forward_weights_.set_data_handle(Mutable(w));
    forward_pad_.set_data_handle(pad);
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, x_},
                                                 {DNNL_ARG_WEIGHTS, forward_weights_},
                                                 {DNNL_ARG_DST, y_},
                                                 {DNNL_ARG_SCRATCHPAD, forward_pad_}};
    if (geometry_.bias) {
      b_.set_data_handle(Mutable(b));
      arguments.emplace(DNNL_ARG_BIAS, b_);
    }
    Guard("multiply", [&] { forward_.execute(stream_, arguments); });
  }

  void BackwardWeights(const float* x, const float* dy, float* dw, float* db,
                       std::byte* pad) override {
    x_.set_data_handle(Mutable(x));
    y_.set_data_handle(Mutable(dy));
    gradient_.set_data_handle(dw);
    weights_pad_.set_data_handle(pad);
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, x_},
                                                 {DNNL_ARG_DIFF_DST, y_},
                                                 {DNNL_ARG_DIFF_WEIGHTS, gradient_},
                                                 {DNNL_ARG_SCRATCHPAD, weights_pad_}};
    if (geometry_.bias) {
      b_.set_data_handle(db);
      arguments.emplace(DNNL_ARG_DIFF_BIAS, b_);
    }
    Guard("multiply", [&] { weights_.execute(stream_, arguments); });
  }

  void BackwardData(const float* dy, const float* w, float* dx, std::byte* pad) override {
    x_.set_data_handle(dx);
    y_.set_data_handle(Mutable(dy));
    data_weights_.set_data_handle(Mutable(w));
    data_pad_.set_data_handle(pad);
    const std::unordered_map<int, memory> arguments = {{DNNL_ARG_DIFF_SRC, x_},
                                                       {DNNL_ARG_WEIGHTS, data_weights_},
                                                       {DNNL_ARG_DIFF_DST, y_},
                                                       {DNNL_ARG_SCRATCHPAD, data_pad_}};
    Guard("multiply", [&] { data_.execute(stream_, arguments); });
  }

  std::shared_ptr<const WeightLayout> forward_layout() const override { return forward_layout_; }
  std::shared_ptr<const WeightLayout> data_layout() const override { return data_layout_; }
  std::shared_ptr<const WeightLayout> gradient_layout() const override { return gradient_layout_; }
  std::size_t scratchpad_bytes() const override { return scratchpad_; }

 private:
  MatmulGeometry geometry_;
  dnnl::stream stream_;
  Forward_ forward_;
  Data_ data_;
  Weights_ weights_;
  memory x_, y_, b_, forward_weights_, data_weights_, gradient_, forward_pad_, data_pad_,
      weights_pad_;
  std::shared_ptr<const WeightLayout> forward_layout_, data_layout_, gradient_layout_;
  std::size_t scratchpad_ = 0;
};

// Padding after the image is what the output's size implies, which may be less than before it.
// oneDNN counts dilation from 0.
std::unique_ptr<Matmul> MakeConvolution(const MatmulGeometry& g, int images,
                                        const WeightLayout* gradient) {
  onednn::ConvolutionShape s;
  s.x = Activation(g.x, images, false);
  s.y = Activation(g.y, images, false);
  s.w = AnyWeights(g);
  s.b = Bias(g);
  s.stride = {g.stride[0], g.stride[1]};
  s.dilation = {g.dilation[0] - 1, g.dilation[1] - 1};
  s.pad_before = {g.padding[0], g.padding[1]};
  s.pad_after = {
      (g.y.h - 1) * g.stride[0] + (g.w.h - 1) * g.dilation[0] + 1 - g.x.h - g.padding[0],
      (g.y.w - 1) * g.stride[1] + (g.w.w - 1) * g.dilation[1] + 1 - g.x.w - g.padding[1]};
  using Made = OnednnMatmul<dnnl::convolution_forward, dnnl::convolution_backward_data,
                            dnnl::convolution_backward_weights>;
  Made::Descriptors d;
  const auto kind =
      g.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  d.forward = onednn::ForwardDescriptor(Engine(), kind, s);
  if (g.training && g.data_gradient)
    d.data = onednn::BackwardDataDescriptor(Engine(), s, d.forward);
  if (gradient != nullptr) s.w = gradient->description();
  if (g.training) d.weights = onednn::BackwardWeightsDescriptor(Engine(), s, d.forward);
  return std::make_unique<Made>(g, d, s.x, s.y);
}

std::unique_ptr<Matmul> MakeInnerProduct(const MatmulGeometry& g, int images,
                                         const WeightLayout* gradient) {
  const bool flat = g.x.h * g.x.w == 1;
  const memory::desc x = Activation(g.x, images, flat), y = Activation(g.y, images, true);
  const memory::desc w = AnyWeights(g), b = Bias(g);
  using Made = OnednnMatmul<dnnl::inner_product_forward, dnnl::inner_product_backward_data,
                            dnnl::inner_product_backward_weights>;
  Made::Descriptors d;
  const auto kind =
      g.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
  d.forward = onednn::ForwardDescriptor(Engine(), kind, x, w, b, y);
  const memory::desc dw = gradient != nullptr ? gradient->description() : w;
  if (g.training) d.weights = onednn::BackwardWeightsDescriptor(Engine(), x, dw, b, y, d.forward);
  if (g.training && g.data_gradient)
    d.data = onednn::BackwardDataDescriptor(Engine(), x, w, y, d.forward);
  return std::make_unique<Made>(g, d, x, y);
}

void Reorder(const memory::desc& from, const float* in, const memory::desc& to, float* out) {
  Guard("reorder weights", [&] {
    dnnl::stream stream(Engine());
    memory source(from, Engine(), Mutable(in)), target(to, Engine(), out);
    dnnl::reorder(source, target).execute(stream, source, target);
    stream.wait();
    return 0;
  });
}

}  // namespace

std::unique_ptr<Matmul> Matmul::Make(const MatmulGeometry& g, int images,
                                     const WeightLayout* gradient) {
  if (g.transposed) return MakeTransposed(g, images, Make(ConvolutionOf(g), images, gradient));
  return Guard(g.linear ? "make a linear layer" : "make a convolution", [&] {
    return g.linear ? MakeInnerProduct(g, images, gradient) : MakeConvolution(g, images, gradient);
  });
}

bool SameLayout(const WeightLayout& a, const WeightLayout& b) {
  return a.description() == b.description();
}
std::size_t LayoutBytes(const WeightLayout& layout) { return layout.description().get_size(); }
void ToLayout(const MatmulGeometry& g, const float* plain, const WeightLayout& layout, float* out) {
  Reorder(PlainWeights(g), plain, layout.description(), out);
}
void FromLayout(const MatmulGeometry& g, const WeightLayout& layout, const float* in,
                float* plain) {
  Reorder(layout.description(), in, PlainWeights(g), plain);
}

namespace {

class OnednnBf16 final : public Bf16Matmul {
 public:
  OnednnBf16(const memory::desc& a, const memory::desc& b, const memory::desc& c)
      : a_(a),
        b_(b),
        c_(c),
        descriptor_(onednn::MatmulDescriptor(Engine(), a, b, c)),
        matmul_(descriptor_) {}

  void Run(const std::uint16_t* a, const std::uint16_t* b, float* c) const override {
    thread_local std::vector<std::byte> pad;
    const memory::desc scratch = descriptor_.scratchpad_desc();
    pad.resize(std::max(pad.size(), scratch.get_size()));
    dnnl::stream stream(Engine());
    const auto at = [](const memory::desc& of, const void* data) {
      return memory(of, Engine(), const_cast<void*>(data));
    };
    const std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, at(a_, a)},
        {DNNL_ARG_WEIGHTS, at(b_, b)},
        {DNNL_ARG_DST, at(c_, c)},
        {DNNL_ARG_SCRATCHPAD, at(scratch, pad.data())}};
    Guard("multiply", [&] { matmul_.execute(stream, arguments), stream.wait(); });
  }

 private:
  memory::desc a_, b_, c_;
  dnnl::matmul::primitive_desc descriptor_;
  dnnl::matmul matmul_;
};

}  // namespace

std::unique_ptr<Bf16Matmul> Bf16Matmul::Make(const Shape& s) {
  constexpr auto kBf16Type = memory::data_type::bf16;
  const memory::dims b = s.transposed ? memory::dims{1, s.b_row} : memory::dims{s.b_row, 1};
  return Guard("prepare a product", [&] {
    return std::make_unique<OnednnBf16>(
        memory::desc({s.rows, s.terms}, kBf16Type, memory::dims{s.a_row, 1}),
        memory::desc({s.terms, s.columns}, kBf16Type, b),
        memory::desc({s.rows, s.columns}, kF32, memory::dims{s.c_row, 1}));
  });
}

std::string OnednnVersion() {
  const dnnl_version_t* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch);
}

}  // namespace ada::backend::cpu
