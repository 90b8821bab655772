// Attention as ada-train computes it, and its products as oneDNN's f32 primitives. See ops.h.
#include <array>

#include "onednn_call.h"
#include "op_tensors.h"
#include "ops.h"

namespace ada::bench {
namespace {

class OurAttention {
 public:
  OurAttention(const Layer& layer, const NumberFormat& format, int threads)
      : tensors_(format, threads), pass_(WholePass(layer.x)) {
    const std::int64_t key_channels = layer.kv_heads * (layer.x.c / layer.heads);
    const Shape keys{layer.x.n, layer.keys, 1, key_channels};
    backend::AttentionSpec spec;
    spec.layer = layer.Text();
    spec.x = {tensors_.Make(layer.x), tensors_.Make(keys), tensors_.Make(keys)};
    spec.y = tensors_.Make(layer.y);
    spec.dy = tensors_.MakeGradient(layer.y);
    for (const Tensor& x : spec.x) {
      tensors_.Fill(x, 1);
      spec.dx.push_back(tensors_.MakeGradient(x.shape));
    }
    tensors_.Fill(spec.dy.tensor, 0.01f);
    spec.heads = layer.heads, spec.kv_heads = layer.kv_heads, spec.causal = layer.causal;
    spec.p_format = spec.ds_format = format;
    spec.y_stats = tensors_.Stats();
    spec.p_stats = tensors_.Stats();
    spec.ds_stats = tensors_.Stats();
    spec.ds_scale = tensors_.Scale();
    for (scaling::LayerScaler*& scaler : spec.scalers) scaler = tensors_.FixedScaler();
    op_ = tensors_.backend().Make(spec);
  }
  void Forward() { op_->Forward(pass_); }
  void Backward() { op_->Backward(pass_); }

 private:
  OpTensors tensors_;
  backend::Pass pass_;
  std::unique_ptr<backend::Op> op_;
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
    using dnnl::memory;
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

template <class Attention>
Program ProgramOf(const std::string& name, const std::shared_ptr<Attention>& attention) {
  Program program;
  program.name = name;
  program.forward = [attention] { attention->Forward(); };
  program.data_gradient = [attention] { attention->Backward(); };
  program.owner = attention;
  return program;
}

}  // namespace

Program MakeOurAttention(const Layer& layer, const std::string& name, const NumberFormat& format,
                         int threads) {
  Program program = ProgramOf(name, std::make_shared<OurAttention>(layer, format, threads));
  program.size = static_cast<int>(BytesOf(StorageFor(format)));
  program.forward();  // the backward pass reads what it keeps
  return program;
}

Program MakeOnednnAttention(const Layer& layer, int threads) {
  return ProgramOf("onednn", std::make_shared<OnednnAttention>(layer, threads));
}

}  // namespace ada::bench
