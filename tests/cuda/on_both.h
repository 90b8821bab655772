// One test body run on the CPU backend and on the kernels of the CUDA backend, and what it wrote
// down compared: bit for bit, or within a bound where the order of a sum in double differs.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/context.h"
#include "cuda/host/host_stream.h"
#endif
#include "backend/values.h"

// The suite of tests that run on whatever MakeBackendUnderTest makes.
#ifdef ADA_CUDA_DEVICE
#define ADA_SUITE "gpu"
#else
#define ADA_SUITE "cpu"
#endif

namespace ada::backend::test {

// A backend and memory for the test of one op; works where backend memory is not the host's.
class Lab {
 public:
  explicit Lab(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  Backend& operator*() const { return *backend_; }
  Backend* operator->() const { return backend_.get(); }

  Tensor Make(const Shape& shape, const NumberFormat& format, const Values& values = {},
              bool in_f32 = false) {
    Tensor t{shape, format, in_f32 ? Storage::kF32 : StorageFor(format), nullptr};
    t.data = backend_->Allocate(t.bytes());
    if (!values.empty()) Set(t, values);
    return t;
  }
  Tensor Vector(const Values& values) {
    return Make({1, 1, 1, static_cast<std::int64_t>(values.size())}, kFp32, values);
  }
  // Values are rounded to the tensor's format.
  void Set(const Tensor& t, const Values& values) {
    std::vector<std::byte> bytes(t.bytes());
    REQUIRE(values.size() == bytes.size() / BytesOf(t.storage));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float v = RoundTo(t.format, values[i]);
      const std::uint16_t code = t.storage == Storage::kBF16 ? EncodeBf16(v) : EncodeFp16(v);
      if (t.storage == Storage::kF32)
        std::memcpy(bytes.data() + 4 * i, &v, 4);
      else
        std::memcpy(bytes.data() + 2 * i, &code, 2);
    }
    backend_->Upload(t.data, bytes.data(), bytes.size());
  }
  Values Get(const Tensor& t) const {
    Values values(static_cast<std::size_t>(t.shape.numel()));
    std::vector<std::byte> bytes(t.bytes());
    backend_->Synchronize();
    backend_->Download(bytes.data(), t.data, bytes.size());
    backend_->Synchronize();
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t code = 0;
      if (t.storage == Storage::kF32)
        std::memcpy(&values[i], bytes.data() + 4 * i, 4);
      else
        std::memcpy(&code, bytes.data() + 2 * i, 2);
      if (t.storage == Storage::kF16) values[i] = DecodeFp16(code);
      if (t.storage == Storage::kBF16) values[i] = DecodeBf16(code);
    }
    return values;
  }

  // Shared memory of one T: what a spec is to point to.
  template <class T>
  T* Share(const T& value = T()) {
    const SharedMemory memory = shared_.emplace_back(backend_->AllocateShared(sizeof(T)));
    new (memory.host) T(value);
    backend_->Send(memory);
    return reinterpret_cast<T*>(memory.backend);
  }
  template <class T>
  T Fetched(const T* shared) const {
    for (const SharedMemory& memory : shared_)
      if (memory.backend == reinterpret_cast<const std::byte*>(shared)) {
        backend_->Fetch(memory);
        backend_->Synchronize();
        return *reinterpret_cast<const T*>(memory.host);
      }
    FAIL("not shared");
    return T();
  }
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format, float scale = 1,
                        const Values& values = {}) {
    Gradient g;
    g.tensor = Make(shape, format, values);
    g.scale = Share(scale), g.stats = Share<TensorStats>(), g.moments = Share<TensorMoments>();
    return g;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::deque<SharedMemory> shared_;
};

// What a body wrote down, in its order.
class Findings {
 public:
  struct Entry {
    std::string name;
    std::vector<double> values;
    double bound;      // relative; 0: bit for bit
    double least = 0;  // differences are relative to this at least
  };
  void Numbers(const std::string& name, const std::vector<double>& values, double bound = 0,
               double least = 0) {
    entries_.push_back({name, values, bound, least});
  }
  // Within `bound` of the tensor's largest magnitude.
  void Near(const std::string& name, const Lab& lab, const Tensor& tensor, double bound) {
    Add(name, lab, tensor);
    entries_.back().bound = bound;
    for (const double v : entries_.back().values)
      entries_.back().least = std::max(entries_.back().least, std::fabs(v));
  }
  void Add(const std::string& name, const Lab& lab, const Tensor& tensor) {
    const Values values = lab.Get(tensor);
    Numbers(name, std::vector<double>(values.begin(), values.end()));
  }
  void Add(const std::string& name, const TensorStats& s) {
    const auto whole = [](std::int64_t x) { return static_cast<double>(x); };
    Numbers(name, {whole(s.numel), whole(s.zeros_before), whole(s.zeros_after), whole(s.underflow),
                   whole(s.below_min), whole(s.subnormal), whole(s.overflow), whole(s.inf),
                   whole(s.nan), static_cast<double>(s.min_abs), static_cast<double>(s.max_abs),
                   whole(s.above_edge), s.full ? 1.0 : 0.0});
    Numbers(name + " sums", {s.l1, s.l2, s.std}, 1e-9);
    // Terms of a mean may cancel: it is as exact as their magnitudes.
    Numbers(name + " mean", {s.mean * static_cast<double>(s.numel) + s.l1}, 1e-9);
  }
  // Adds the statistics of a rounding to this format. Where no more than the largest magnitude is
  // measured it may have been taken before or after rounding.
  void Add(const std::string& name, TensorStats s, const NumberFormat& format) {
    if (!s.full) s.max_abs = RoundTo(format, s.max_abs);
    Add(name, s);
  }
  void Add(const std::string& name, const TensorMoments& m) {
    Numbers(name, {static_cast<double>(m.min), static_cast<double>(m.max),
                   static_cast<double>(m.min_abs)});
    Numbers(name + " mean_square", {m.mean_square}, 1e-5);  // fp32 sums of fp16 values
  }
  // `bound`: of the unbound scale, which rests on moments.
  void Add(const scaling::LayerScaler& scaler, double bound = 1e-9) {
    const scaling::ScaleDecision& made = scaler.decision;
    const scaling::ExponentTail& tail = scaler.state.tail;
    Numbers("decision", {static_cast<double>(made.alpha), static_cast<double>(made.limit),
                         static_cast<double>(made.error), static_cast<double>(scaler.state.calls)});
    Numbers("unbound", {made.unbound}, bound);
    std::vector<double> numbers(tail.bins, tail.bins + scaling::ExponentTail::kBins);
    numbers.insert(numbers.end(), {static_cast<double>(tail.nonzero), tail.largest});
    Numbers("tail", numbers);
  }
  void Add(const std::string& name, const Lab& lab, const Gradient& g) {
    Add(name, lab, g.tensor);
    Numbers(name + " scale", {static_cast<double>(lab.Fetched(g.scale))});
    if (g.stats != nullptr) Add(name + " stats", lab.Fetched(g.stats));
    if (g.moments != nullptr) Add(name + " moments", lab.Fetched(g.moments));
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

// exactly: bit for bit, whatever the bounds are.
inline void CheckSame(const Findings& all_want, const Findings& all_got, bool exactly = false) {
  REQUIRE(all_want.entries().size() == all_got.entries().size());
  for (std::size_t k = 0; k < all_want.entries().size(); ++k) {
    const Findings::Entry &want = all_want.entries()[k], &got = all_got.entries()[k];
    REQUIRE(want.values.size() == got.values.size());
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = want.values.size(); i-- > 0;) {
      const double a = want.values[i], b = got.values[i];
      const bool same =
          std::isnan(a) || std::isnan(b) || std::isinf(a) || exactly || want.bound == 0
              ? ada::test::Same(static_cast<float>(a), static_cast<float>(b)) &&
                    (a == b || std::isnan(a))
              : std::fabs(a - b) <= want.bound * std::max({std::fabs(a), want.least, 1e-30});
      if (!same) ++wrong, first = i;
    }
    CHECK_MESSAGE(wrong == 0, want.name << ": " << wrong << " of " << want.values.size()
                                        << " differ, first [" << first
                                        << "] = " << (wrong > 0 ? got.values[first] : 0)
                                        << ", on the CPU " << (wrong > 0 ? want.values[first] : 0));
  }
}

// The backend whose kernels are under test.
inline std::unique_ptr<Backend> MakeBackendUnderTest(const CudaSwitches& switches) {
  DeviceOptions options;
  options.switches = switches;
#ifdef ADA_CUDA_DEVICE
  return MakeCudaBackend(0, options);
#else
  return MakeHostExecutedBackend(options);
#endif
}
// As made; on the host executor memory that nobody promises to be zero is NaN.
inline std::unique_ptr<Backend> MakeBackendUnderTest() {
  CudaSwitches switches;
#ifndef ADA_CUDA_DEVICE
  switches.poison = true;
#endif
  return MakeBackendUnderTest(switches);
}

// body(lab, findings) on both. The host executor runs it a second time with all threads and blocks
// in the opposite order: kernels that race would show.
template <class Body>
void OnBoth(Body&& body) {
  const auto run = [&body](std::unique_ptr<Backend> backend) {
    Lab lab(std::move(backend));
    Findings findings;
    body(lab, findings);
    return findings;
  };
  const Findings got = run(MakeBackendUnderTest());
  CheckSame(run(cpu::MakeCpuBackend(1)), got);
#ifndef ADA_CUDA_DEVICE
  auto stream = std::make_unique<cuda::HostStream>();
  stream->set_reverse(true);
  CheckSame(got, run(cuda::MakeBackendOn(std::move(stream), {"reverse", "host"}, {})), true);
#endif
}

}  // namespace ada::backend::test
