// A layer by oneDNN's f32 primitives, each over the whole batch with all threads. See ops.h.
#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/matmul/plan/fp32_matmul.h"
#include "ops.h"

namespace ada::bench {
namespace {

using dnnl::memory;

// oneDNN takes its threads from OpenMP; our backend leaves OpenMP one.
class Threads {
 public:
  explicit Threads(int threads) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(1); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

// Memory as ours has it.
class Values {
 public:
  float* Make(std::size_t count, float deviation) {
    auto* const values = reinterpret_cast<float*>(backend_->Allocate(count * sizeof(float)));
    FillNormal(values, count, deviation);
    return values;
  }
  float* Make(const Shape& shape, float deviation) {
    return Make(static_cast<std::size_t>(shape.numel()), deviation);
  }

 private:
  std::unique_ptr<backend::Backend> backend_ = backend::cpu::MakeCpuBackend(1);
};

// A convolution or a linear layer.
class OnednnMatmul {
 public:
  OnednnMatmul(const Layer& l, Part part, int threads) : part_(part) {
    const Threads all(threads);
    backend::cpu::MatmulGeometry g;
    g.x = l.x, g.y = l.y, g.w = l.w;
    g.linear = l.linear, g.bias = l.bias, g.groups = l.groups;
    g.stride = l.stride, g.padding = l.padding, g.dilation = l.dilation;
    std::int64_t images = l.x.n;
    if (l.linear) {  // one a position of y
      images = l.y.numel() / l.y.c;
      g.x = {1, 1, 1, l.x.numel() / images}, g.y = {1, 1, 1, l.y.c};
      g.w = {l.y.c, 1, 1, g.x.c};
    }
    matmul_ = backend::cpu::Matmul::Make(g, static_cast<int>(images), nullptr);
    std::size_t bytes = 0;
    for (const auto& layout :
         {matmul_->forward_layout(), matmul_->data_layout(), matmul_->gradient_layout()})
      bytes = std::max(bytes, LayoutBytes(*layout));
    x_ = values_.Make(l.x, 1);
    w_ = values_.Make(bytes / sizeof(float), 0.1f);
    b_ = values_.Make({1, 1, 1, l.y.c}, 1);
    y_ = values_.Make(l.y, 0.01f);
    scratchpad_.resize(matmul_->scratchpad_bytes());
  }
  void Run() {
    if (part_ == Part::kForward)
      matmul_->Forward(x_, w_, b_, y_, scratchpad_.data());
    else if (part_ == Part::kWeightGradient)
      matmul_->BackwardWeights(x_, y_, w_, b_, scratchpad_.data());
    else
      matmul_->BackwardData(y_, w_, x_, scratchpad_.data());
  }

 private:
  Part part_;
  std::unique_ptr<backend::cpu::Matmul> matmul_;
  Values values_;
  std::vector<std::byte> scratchpad_;
  float *x_, *w_, *b_, *y_;
};

// The products of all heads; queries that share keys multiply copies of them, as oneDNN knows no
// groups.
class OnednnAttention {
 public:
  OnednnAttention(const Layer& l, Part part, int threads) {
    const Threads all(threads);
    const memory::dim heads = l.x.n * l.heads, queries = l.x.h * l.x.w, width = l.x.c / l.heads;
    Add({heads, queries, width, l.keys});  // scores, or the gradient of probabilities
    Add({heads, queries, l.keys, width});  // values, or the gradient of queries
    if (part == Part::kForward) return;
    Add({heads, l.keys, queries, width});  // the gradients of values and of keys
    Add({heads, l.keys, queries, width});
  }
  void Run() {
    for (const Call& call : calls_) {
      call.product.execute(
          stream_, {{DNNL_ARG_SRC, call.a}, {DNNL_ARG_WEIGHTS, call.b}, {DNNL_ARG_DST, call.y}});
      stream_.wait();
    }
  }

 private:
  struct Product {
    memory::dim count, rows, terms, columns;
  };
  struct Call {
    dnnl::matmul product;
    memory a, b, y;
  };
  void Add(const Product& p) {
    const memory::desc a = Any({p.count, p.rows, p.terms}), b = Any({p.count, p.terms, p.columns}),
                       y = Any({p.count, p.rows, p.columns});
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc d(engine_, a, b, y);
#else
    const dnnl::matmul::primitive_desc d({a, b, y}, engine_);
#endif
    calls_.push_back(
        {dnnl::matmul(d), Filled(d.src_desc()), Filled(d.weights_desc()), Filled(d.dst_desc())});
  }
  static memory::desc Any(const memory::dims& dims) {
    return {dims, memory::data_type::f32, memory::format_tag::any};
  }
  memory Filled(const memory::desc& description) {
    return {description, engine_, values_.Make(description.get_size() / sizeof(float), 0.1f)};
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Values values_;
  std::vector<Call> calls_;
};

template <class Program>
Work WorkOf(const Layer& layer, Part part, int threads) {
  return [program = std::make_shared<Program>(layer, part, threads), threads] {
    const Threads all(threads);
    program->Run();
  };
}

}  // namespace

Work MakeOnednn(const Layer& layer, Part part, int threads) {
  return (layer.attention() ? WorkOf<OnednnAttention> : WorkOf<OnednnMatmul>)(layer, part, threads);
}

}  // namespace ada::bench
