// Compares what two backends wrote in one call of an op, then overwrites the second's memory with
// the first's, so that the next op reads the same on both.
#pragma once
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/compare/op_outputs.h"
#include "backend/compare/tolerances.h"
#include "error.h"

namespace ada::backend {

// The memory of two backends: whatever one allocates, the other does too. Places are named by the
// first one's addresses, which are those that the graph sees.
class PairedMemory {
 public:
  PairedMemory(Backend& first, Backend& second) : sides_{&first, &second} {}

  std::byte* Allocate(std::size_t bytes) {
    return Keep({sides_[0]->Allocate(bytes), nullptr, bytes}, {sides_[1]->Allocate(bytes)}).backend;
  }
  SharedMemory AllocateShared(std::size_t bytes) {
    return Keep(sides_[0]->AllocateShared(bytes), sides_[1]->AllocateShared(bytes));
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) {
    sides_[0]->Upload(to, from, bytes), sides_[1]->Upload(Second(to), from, bytes);
  }
  void Send(const SharedMemory& memory) {
    sides_[0]->Send(memory), sides_[1]->Send(ShowOnHost(memory.backend, memory.bytes));
  }
  // Copies the host memory of the first backend to that of the second, because an op being made may
  // read it before it is sent. Returns the second's memory.
  SharedMemory ShowOnHost(const void* place, std::size_t bytes) {
    const auto& [first, second] = BlockOf(place);
    const auto at = static_cast<const std::byte*>(place) - first.backend;
    std::memmove(second.host + at, first.host + at, bytes);
    return {second.backend + at, second.host + at, bytes};
  }
  // The same spec, tensor or slots with the second backend's addresses; null stays null.
  template <class Part>
  Part ForSecond(Part part) const {
    ForEachPointer(part, [&](auto*& pointer) { pointer = Second(pointer); });
    return part;
  }

  // The value at a place of one side (0, 1) after all work is done.
  template <class T>
  T Read(int side, const T* place) const {
    T value{};
    const T* from = side == 0 ? place : Second(place);
    sides_[side]->Synchronize();
    sides_[side]->Download(&value, reinterpret_cast<const std::byte*>(from), sizeof value);
    return value;
  }
  // Images of a tensor as fp32; of none there are none.
  std::vector<float> Values(int side, const Tensor& tensor, std::int64_t images) const {
    if (!tensor) return {};
    std::vector<float> values(static_cast<std::size_t>(images * tensor.shape.per_image()));
    sides_[side]->Synchronize();
    sides_[side]->Read(side == 0 ? tensor : ForSecond(tensor), images, values.data());
    return values;
  }
  // The second's bytes become the first's, if there are any.
  template <class T>
  void Copy(T* place, std::size_t bytes = sizeof(T)) {
    if (place == nullptr) return;
    std::vector<std::byte> from(bytes);
    for (Backend* side : sides_) side->Synchronize();
    sides_[0]->Download(from.data(), reinterpret_cast<const std::byte*>(place), bytes);
    sides_[1]->Upload(reinterpret_cast<std::byte*>(Second(place)), from.data(), bytes);
  }

 private:
  using Block = std::pair<SharedMemory, SharedMemory>;  // host: null where it is not shared
  const SharedMemory& Keep(const SharedMemory& first, const SharedMemory& second) {
    return (blocks_[first.backend] = {first, second}).first;
  }
  const Block& BlockOf(const void* place) const {
    const auto after = blocks_.upper_bound(static_cast<const std::byte*>(place));
    ADA_CHECK(after != blocks_.begin());
    return std::prev(after)->second;
  }
  template <class T>
  T* Second(T* pointer) const {
    if (pointer == nullptr) return nullptr;
    const auto& [first, second] = BlockOf(pointer);
    const auto at = reinterpret_cast<const std::byte*>(pointer) - first.backend;
    ADA_CHECK(static_cast<std::size_t>(at) < first.bytes);
    return reinterpret_cast<T*>(second.backend + at);
  }

  Backend* sides_[2];
  std::map<const std::byte*, Block> blocks_;  // by the first's address
};

}  // namespace ada::backend

namespace ada::backend::compare {

// State shared by all ops of one compare backend.
struct Comparison {
  const CompareOptions options;
  const std::unique_ptr<Backend> first, second;
  PairedMemory memory{*first, *second};
  std::int64_t calls = 0;
  std::uint64_t variants = 0;
};

// Tolerances of outputs by name (others must be equal), taken before the op overwrites operands.
using SumTolerances = std::map<std::string, SumTolerance>;
SumTolerances TolerancesOf(const Comparison&, const MatmulSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const BatchNormSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const AttentionSpec&, const Pass&);
SumTolerances TolerancesOf(const Comparison&, const ClassLossSpec&, const Pass&);

class Checker {
 public:
  Checker(Comparison& all, const std::string& layer, const char* op, const char* phase)
      : all_(all), about_{++all.calls, layer, op, phase, {}, {}, 0, 0, {}} {}

  // Checks decisions and scales first, because values depend on them, then all else.
  void Check(const Outputs& outputs, const Pass& pass, SumTolerances sums = {});
  // `names`: "x,y,z". Number i may differ by allowed[i % size] + relative * |a[i]|.
  void Compare(const char* names, const Numbers& a, const Numbers& b, const Numbers& allowed = {0},
               double relative = 0);

 private:
  struct OutputValues;  // an output's values
  void CheckDecision(const Output& out, double bound);
  void CheckValues(const OutputValues& seen);
  void CheckStats(const OutputValues& seen, const TensorStats& a, const TensorStats& b);
  void CheckMoments(const OutputValues& seen, const TensorMoments& a, const TensorMoments& b);
  void CheckNotes(const OutputValues& seen, const Pass& pass);
  void CompareBins(const char* name, const Numbers& a, const Numbers& b, double allowed);
  // Calls check(a, b) with the values at a place, then overwrites the second with the first.
  void Both(auto* place, const auto& check) {
    if (place == nullptr) return;
    check(all_.memory.Read(0, place), all_.memory.Read(1, place));
    all_.memory.Copy(place);
  }
  void Report(const std::string& what, double first, double second, const std::string& allowed);

  Comparison& all_;
  Difference about_;
  bool reported_ = false;
};

}  // namespace ada::backend::compare

namespace ada::backend {}  // namespace ada::backend
