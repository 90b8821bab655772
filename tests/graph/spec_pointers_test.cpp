// What holds a spec's pointers is listed once, in its Visit. Here the pointers that graphs fill in
// are found without that list, by looking at a spec's bytes: each must be one that ForEachPointer
// reaches.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <type_traits>
#include <vector>

#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/networks.h"
#include "graph/precisions.h"

// Padding is found by a builtin of GCC's, which clang has not.
#if __has_builtin(__builtin_clear_padding)
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

// The object's bytes as words, but those of its name, in which there may be anything; after them
// those of what its lists hold.
template <typename T>
std::vector<Word> WordsOf(const T& object) {
  std::vector<Word> words(sizeof object / sizeof(Word));
  const auto* bytes = reinterpret_cast<const std::byte*>(&object);
  std::memcpy(words.data(), bytes, words.size() * sizeof(Word));
  if constexpr (requires { object.layer; }) {
    const auto* name = reinterpret_cast<const std::byte*>(&object.layer);
    const auto first = words.begin() + (name - bytes) / static_cast<std::ptrdiff_t>(sizeof(Word));
    std::fill_n(first, sizeof object.layer / sizeof(Word), Word{0});
  }
  const auto append = [&](const auto& list) {
    for (const auto& element : list)
      for (const Word word : WordsOf(element)) words.push_back(word);
  };
  if constexpr (requires { object.x.begin(); }) append(object.x);
  if constexpr (requires { object.dx.begin(); }) append(object.dx);
  if constexpr (requires { object.branches.begin(); }) append(object.branches);
  return words;
}

// Zeros the padding of a spec's parts, in which there may be anything, old pointers too.
struct ClearPadding {
  template <typename... Parts>
  void operator()(Parts&... parts) const {
    (Clear(parts), ...);
  }
  template <typename Part>
  static void Clear(Part& part) {
    if constexpr (std::is_trivially_copyable_v<Part>) {
      __builtin_clear_padding(&part);
    } else if constexpr (requires { part.Visit(ClearPadding()); }) {
      part.Visit(ClearPadding());
    } else {
      for (auto& element : part) Clear(element);
    }
  }
};

template <typename Spec>
void CheckPointers(const OwningBackend& backend, const Spec& original) {
  const auto memory =
      std::make_unique<std::byte[]>(sizeof(Spec));    // zeroed, the spec's own padding
  asm volatile("" : : "r"(memory.get()) : "memory");  // and it stays so
  Spec& spec = *new (memory.get()) Spec(original);
  spec.Visit(ClearPadding());
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
  spec.~Spec();
}

Precision Stochastic(Precision precision) {
  precision.stochastic = true;
  return precision;
}

TEST_SUITE("cpu") {
  TEST_CASE("ForEachPointer reaches every pointer of every kind of spec") {
    std::set<std::size_t> kinds;
    std::vector<TestNetwork> networks = AllNetworks();
    networks.push_back({"with sequences", WithSequences(), {5, 4, 4, 3}});
    for (const TestNetwork& network : networks) {
      CAPTURE(network.name);
      for (const Precision& precision : {Uniform(kFp16), Stochastic(HybridFp8())}) {
        OwningBackend backend;
        GraphSpec spec;
        spec.model = &network.model;
        spec.precision = precision;
        spec.input = network.input;
        spec.task = network.task;
        spec.histograms = {"y", "w", "dx", "dw", "dy"};
        const auto graph = Graph::Build(spec, backend);
        for (const backend::OpSpec& op : backend.specs) {
          kinds.insert(op.index());
          std::visit([&](const auto& s) { CheckPointers(backend, s); }, op);
        }
        CheckPointers(backend, backend.inputs.back());
        std::visit([&](const auto& s) { CheckPointers(backend, s); }, backend.losses.back());
      }
    }
    CHECK(kinds.size() + 1 == std::variant_size_v<backend::OpSpec>);  // images have no embedding
  }
}

}  // namespace
}  // namespace ada::graph::test
#endif
