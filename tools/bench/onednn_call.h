// A oneDNN primitive with its own memory, and the threads it takes.
#pragma once
#include <omp.h>

#include <unordered_map>

#include "backend/cpu/matmul/plan/onednn_version.h"
#include "ops.h"

namespace ada::bench {

namespace onednn = backend::cpu::onednn;

// oneDNN takes its threads from OpenMP; our backend leaves OpenMP one.
class Threads {
 public:
  explicit Threads(int threads) { omp_set_num_threads(threads); }
  ~Threads() { omp_set_num_threads(1); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
};

inline dnnl::memory Filled(const dnnl::engine& engine, const dnnl::memory::desc& description,
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

}  // namespace ada::bench
