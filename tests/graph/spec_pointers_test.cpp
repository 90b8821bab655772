// What holds a spec's pointers is listed once, in its Visit. Here the pointers that graphs fill in
// are found without that list, by looking at a spec's bytes: each must be one that ForEachPointer
// reaches.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/networks.h"
#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

using Word = std::uintptr_t;
constexpr Word kElsewhere = Word{1} << 62;

// Knows what it has allocated.
class OwningBackend final : public FakeBackend {
 public:
  std::byte* Allocate(std::size_t bytes) override {
    return Keep(FakeBackend::Allocate(bytes), bytes);
  }
  backend::SharedMemory AllocateShared(std::size_t bytes) override {
    const backend::SharedMemory memory = FakeBackend::AllocateShared(bytes);
    Keep(memory.backend, bytes);
    return memory;
  }
  bool Owns(Word address) const {
    const auto after = blocks_.upper_bound(address);
    return after != blocks_.begin() && address - std::prev(after)->first < std::prev(after)->second;
  }

 private:
  std::byte* Keep(std::byte* memory, std::size_t bytes) {
    blocks_[reinterpret_cast<Word>(memory)] = bytes;
    return memory;
  }
  std::map<Word, std::size_t> blocks_;
};

// The object's bytes as words, behind them those of what its lists hold.
template <typename T>
std::vector<Word> WordsOf(const T& object) {
  std::vector<Word> words(sizeof object / sizeof(Word));
  std::memcpy(words.data(), reinterpret_cast<const std::byte*>(&object),
              words.size() * sizeof(Word));
  const auto append = [&](const auto& list) {
    for (const auto& element : list)
      for (const Word word : WordsOf(element)) words.push_back(word);
  };
  if constexpr (requires { object.x.begin(); }) append(object.x);
  if constexpr (requires { object.dx.begin(); }) append(object.dx);
  if constexpr (requires { object.branches.begin(); }) append(object.branches);
  return words;
}

template <typename Spec>
void CheckPointers(const OwningBackend& backend, Spec spec) {
  std::multiset<Word> found, reached, moved;
  for (const Word word : WordsOf(spec))
    if (backend.Owns(word)) found.insert(word);
  backend::ForEachPointer(spec, [&](auto*& pointer) {
    auto word = reinterpret_cast<Word>(pointer);
    if (word != 0) reached.insert(word);
    word |= kElsewhere;
    std::memcpy(&pointer, &word, sizeof pointer);
  });
  for (const Word word : WordsOf(spec)) {
    CHECK_FALSE(backend.Owns(word));
    if ((word & kElsewhere) != 0 && backend.Owns(word & ~kElsewhere))
      moved.insert(word & ~kElsewhere);
  }
  CHECK(!found.empty());
  CHECK(reached == found);
  CHECK(moved == found);
}

Precision Stochastic(Precision precision) {
  precision.stochastic = true;
  return precision;
}

TEST_SUITE("cpu") {
  TEST_CASE("ForEachPointer reaches every pointer of every kind of spec") {
    std::set<std::size_t> kinds;
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      for (const Precision& precision : {Uniform(kFp16), Stochastic(HybridFp8())}) {
        OwningBackend backend;
        GraphSpec spec;
        spec.model = &network.model;
        spec.precision = precision;
        spec.input = network.input;
        spec.histograms = {"y", "w", "dx", "dw", "dy"};
        const auto graph = Graph::Build(spec, backend);
        for (const backend::OpSpec& op : backend.specs) {
          kinds.insert(op.index());
          std::visit([&](const auto& s) { CheckPointers(backend, s); }, op);
        }
        CheckPointers(backend, backend.inputs.back());
        CheckPointers(backend, backend.losses.back());
      }
    }
    CHECK(kinds.size() == std::variant_size_v<backend::OpSpec>);
  }
}

}  // namespace
}  // namespace ada::graph::test
