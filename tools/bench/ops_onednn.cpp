// A layer as oneDNN's f32 primitives, each over the whole batch with all threads, in the layouts
// that oneDNN asks for: what benchdnn would time. See ops.h.
#include <omp.h>

#include <unordered_map>

#include "backend/cpu/matmul/plan/onednn_matmul.cpp"
#include "ops.h"

namespace ada::bench {
namespace {

namespace onednn = backend::cpu::onednn;

// oneDNN takes its threads from OpenMP; our backend leaves OpenMP one.
class Threads {
 public:
  explicit Threads(int threads) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(1); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

dnnl::memory Filled(const dnnl::engine& engine, const dnnl::memory::desc& description,
                    float deviation) {
  dnnl::memory m(description, engine);
  FillNormal(static_cast<float*>(m.get_data_handle()), description.get_size() / sizeof(float),
             deviation);
  return m;
}

// A primitive with its own memory.
struct Call {
  dnnl::primitive primitive;
  std::unordered_map<int, dnnl::memory> arguments;

  void Run(dnnl::stream& stream, int threads) {
    const Threads all(threads);
    primitive.execute(stream, arguments);
    stream.wait();
  }
};

using dnnl::memory;

memory::desc Any(const memory::dims& dims) {
  return {dims, memory::data_type::f32, memory::format_tag::any};
}

class Onednn {
 public:
  Onednn(const Layer& layer, int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Threads all(threads_);
    if (layer.linear)
      MakeLinear(layer);
    else
      MakeConvolution(layer);
  }

  bool has_data_gradient() const { return static_cast<bool>(data_.primitive); }
  void Forward() { Run(forward_); }
  void DataGradient() { Run(data_); }
  void WeightGradient() { Run(weights_); }

 private:
  void Run(Call& call) { call.Run(stream_, threads_); }
  memory Filled(const memory::desc& description, float deviation) {
    return bench::Filled(engine_, description, deviation);
  }

  template <class Primitive, class Descriptor>
  Call MakeForward(const Descriptor& d) {
    Call call{Primitive(d), {}};
    call.arguments = {{DNNL_ARG_SRC, Filled(d.src_desc(), 1)},
                      {DNNL_ARG_WEIGHTS, Filled(d.weights_desc(), 0.1f)},
                      {DNNL_ARG_DST, Filled(d.dst_desc(), 0)},
                      {DNNL_ARG_SCRATCHPAD, memory(d.scratchpad_desc(), engine_)}};
    if (bias_) call.arguments.emplace(DNNL_ARG_BIAS, Filled(bias_desc_, 1));
    return call;
  }
  template <class Primitive, class Descriptor>
  Call MakeData(const Descriptor& d) {
    Call call{Primitive(d), {}};
    call.arguments = {{DNNL_ARG_DIFF_SRC, Filled(d.diff_src_desc(), 0)},
                      {DNNL_ARG_WEIGHTS, Filled(d.weights_desc(), 0.1f)},
                      {DNNL_ARG_DIFF_DST, Filled(d.diff_dst_desc(), 0.01f)},
                      {DNNL_ARG_SCRATCHPAD, memory(d.scratchpad_desc(), engine_)}};
    return call;
  }
  template <class Primitive, class Descriptor>
  Call MakeWeights(const Descriptor& d) {
    Call call{Primitive(d), {}};
    call.arguments = {{DNNL_ARG_SRC, Filled(d.src_desc(), 1)},
                      {DNNL_ARG_DIFF_WEIGHTS, Filled(d.diff_weights_desc(), 0)},
                      {DNNL_ARG_DIFF_DST, Filled(d.diff_dst_desc(), 0.01f)},
                      {DNNL_ARG_SCRATCHPAD, memory(d.scratchpad_desc(), engine_)}};
    if (bias_) call.arguments.emplace(DNNL_ARG_DIFF_BIAS, Filled(bias_desc_, 0));
    return call;
  }

  void MakeConvolution(const Layer& l) {
    const memory::dim groups = l.groups;
    onednn::ConvolutionShape s;
    s.x = Any({l.x.n, l.x.c, l.x.h, l.x.w});
    s.y = Any({l.y.n, l.y.c, l.y.h, l.y.w});
    s.w = groups == 1 ? Any({l.w.n, l.w.c, l.w.h, l.w.w})
                      : Any({groups, l.w.n / groups, l.w.c, l.w.h, l.w.w});
    s.b = Bias(l);
    s.stride = {l.stride[0], l.stride[1]};
    s.dilation = {l.dilation[0] - 1, l.dilation[1] - 1};
    s.pad_before = {l.padding[0], l.padding[1]};
    s.pad_after = {
        (l.y.h - 1) * l.stride[0] + (l.w.h - 1) * l.dilation[0] + 1 - l.x.h - l.padding[0],
        (l.y.w - 1) * l.stride[1] + (l.w.w - 1) * l.dilation[1] + 1 - l.x.w - l.padding[1]};
    const auto forward = onednn::ForwardDescriptor(engine_, dnnl::prop_kind::forward_training, s);
    forward_ = MakeForward<dnnl::convolution_forward>(forward);
    weights_ = MakeWeights<dnnl::convolution_backward_weights>(
        onednn::BackwardWeightsDescriptor(engine_, s, forward));
    if (l.data_gradient)
      data_ = MakeData<dnnl::convolution_backward_data>(
          onednn::BackwardDataDescriptor(engine_, s, forward));
  }

  void MakeLinear(const Layer& l) {
    const memory::dim rows = l.y.numel() / l.y.c;  // one a position of y
    const memory::dim inputs = l.x.numel() / rows;
    const memory::desc x = Any({rows, inputs}), y = Any({rows, l.y.c}), w = Any({l.y.c, inputs}),
                       b = Bias(l);
    const auto forward =
        onednn::ForwardDescriptor(engine_, dnnl::prop_kind::forward_training, x, w, b, y);
    forward_ = MakeForward<dnnl::inner_product_forward>(forward);
    weights_ = MakeWeights<dnnl::inner_product_backward_weights>(
        onednn::BackwardWeightsDescriptor(engine_, x, w, b, y, forward));
    if (l.data_gradient)
      data_ = MakeData<dnnl::inner_product_backward_data>(
          onednn::BackwardDataDescriptor(engine_, x, w, y, forward));
  }

  memory::desc Bias(const Layer& l) {
    bias_ = l.bias;
    if (bias_) bias_desc_ = {{l.y.c}, memory::data_type::f32, memory::format_tag::x};
    return bias_desc_;
  }

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  bool bias_ = false;
  memory::desc bias_desc_;
  Call forward_, data_, weights_;
};

// The products of all heads; queries that share keys multiply copies of them, as oneDNN knows no
// groups.
class OnednnAttention {
 public:
  OnednnAttention(const Layer& layer, int threads)
      : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Threads all(threads_);
    const dnnl::memory::dim heads = layer.x.n * layer.heads, queries = layer.x.h * layer.x.w,
                            keys = layer.keys, width = layer.x.c / layer.heads;
    const Matrix rows{queries, width}, columns{width, keys}, scores{queries, keys};
    const Matrix values{keys, width}, transposed{keys, queries};
    forward_ = {Product(heads, rows, columns), Product(heads, scores, values)};
    backward_ = {Product(heads, transposed, rows), Product(heads, rows, columns),
                 Product(heads, scores, values), Product(heads, transposed, rows)};
  }
  void Forward() {
    for (Call& call : forward_) call.Run(stream_, threads_);
  }
  void Backward() {
    for (Call& call : backward_) call.Run(stream_, threads_);
  }

 private:
  struct Matrix {
    dnnl::memory::dim rows, columns;
  };
  Call Product(dnnl::memory::dim count, const Matrix& a, const Matrix& b) {
    const auto any = [&](const Matrix& m) {
      return memory::desc({count, m.rows, m.columns}, memory::data_type::f32,
                          memory::format_tag::any);
    };
    const auto d = onednn::MatmulDescriptor(engine_, any(a), any(b), any({a.rows, b.columns}));
    Call call{dnnl::matmul(d), {}};
    call.arguments = {{DNNL_ARG_SRC, Filled(engine_, d.src_desc(), 1)},
                      {DNNL_ARG_WEIGHTS, Filled(engine_, d.weights_desc(), 0.1f)},
                      {DNNL_ARG_DST, Filled(engine_, d.dst_desc(), 0)},
                      {DNNL_ARG_SCRATCHPAD, memory(d.scratchpad_desc(), engine_)}};
    return call;
  }

  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::array<Call, 2> forward_;
  std::array<Call, 4> backward_;
};

}  // namespace

Program MakeOnednn(const Layer& layer, int threads) {
  Program program;
  if (layer.attention()) {
    const auto onednn = std::make_shared<OnednnAttention>(layer, threads);
    program.forward = [onednn] { onednn->Forward(); };
    program.data_gradient = [onednn] { onednn->Backward(); };
    program.owner = onednn;
    return program;
  }
  const auto onednn = std::make_shared<Onednn>(layer, threads);
  program.forward = [onednn] { onednn->Forward(); };
  program.weight_gradient = [onednn] { onednn->WeightGradient(); };
  if (onednn->has_data_gradient()) program.data_gradient = [onednn] { onednn->DataGradient(); };
  program.owner = onednn;
  return program;
}

}  // namespace ada::bench
