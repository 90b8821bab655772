// Ops as the backend hands them out, and steps that are replayed. Before each call the pass's
// values are stored where kernels read them, unless Backend::Run has done so, and work on the side
// stream is waited for where the op writes what it reads. A step that was seen before is not
// launched kernel by kernel, but replayed as a whole.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/link.h"
#include "backend/cuda/messages.h"
#include "backend/cuda/side_stream.h"
#include "backend/cuda/stream.h"
#include "error.h"

namespace ada::backend::cuda {

class RowChain;

// The values of the pass whose work is being asked for, in backend memory.
// The backend has one. Kernels read seed, S, the draw and the like from it, so that a recorded step
// can run with other values than those that it was recorded with.
class PassStore {
 public:
  // memory: of one PassValues. chain: what an op may leave to the next; null: none does.
  PassStore(Stream& stream, std::byte* memory, RowChain* chain = nullptr);
  const PassValues* values() const { return values_; }
  // All work asked for from now on is of `pass`, unless an outer pass is Scope.
  void Set(const Pass& pass);
  // Launches what the op before has left, before an op that does not take it.
  void LaunchLeft();
  // While it lives, all work is of `pass`, and Set does nothing: the work may be being recorded.
  // Within another its values are that one's.
  class Scope {
   public:
    Scope(PassStore& store, const Pass& pass) : store_(store), was_held_(store.held_) {
      ADA_CHECK(!was_held_ || ValuesOf(pass) == store.last_);
      store_.Set(pass);
      store_.held_ = true;
    }
    ~Scope() { store_.held_ = was_held_; }
    Scope(const Scope&) = delete;

   private:
    PassStore& store_;
    const bool was_held_;
  };

 private:
  // Only what kernels read on the device: rows and flags are arguments of launches, and part of the
  // key under which a step is recorded.
  static PassValues ValuesOf(const Pass& pass) {
    return {pass.seed, pass.draw, pass.loss_terms, pass.edge, pass.loss_scale, pass.share};
  }

  Stream& stream_;
  RowChain* const chain_;
  PassValues* values_;
  PassValues last_;
  bool known_ = false, held_ = false;
};

// Calls visit(gradient) with every gradient of a spec, empty ones included.
template <class Part, class Visitor>
void ForEachGradient(Part& part, const Visitor& visit) {
  if constexpr (std::is_same_v<Part, Gradient>) {
    visit(part);
  } else if constexpr (std::is_pointer_v<Part> || std::is_same_v<Part, Tensor>) {
    return;
  } else if constexpr (requires { part.begin(); }) {
    for (auto& element : part) ForEachGradient(element, visit);
  } else {
    part.Visit([&](auto&... parts) { (ForEachGradient(parts, visit), ...); });
  }
}

// The gradients that Backward of an op with this spec may write: its own outputs, and of its inputs
// at most dy, which a batch norm masks.
template <class Spec>
std::vector<Range> GradientsWrittenBy(Spec spec) {
  std::vector<Range> written;
  if constexpr (std::is_base_of_v<MatmulSpec, Spec>)
    written.push_back(RangeOf(spec.dx.tensor));
  else if constexpr (std::is_same_v<Spec, BranchSumSpec>)
    written.push_back(RangeOf(spec.sum.tensor));
  else
    ForEachGradient(spec, [&](const Gradient& g) { written.push_back(RangeOf(g.tensor)); });
  return written;
}

// Null stays null. written: see above; takes_chain: Forward sees to what the op before has left
// (row_chain.h).
// Wraps an op so that each call sets the pass's values first.
std::unique_ptr<Op> InPass(PassStore& store, SideStream& side_stream, std::unique_ptr<Op> op,
                           const std::vector<Range>& written, bool takes_chain = false);
std::unique_ptr<InputOp> InPass(PassStore& store, std::unique_ptr<InputOp> op);
std::unique_ptr<LossOp> InPass(PassStore& store, std::unique_ptr<LossOp> op);

// Backend::Run. The first call of a variant is done as it is (libraries load their kernels then),
// the second is recorded, and from then on the recording is replayed. A Run within another is part
// of that one's recording. A variant that the device cannot record is done as it is every time, but
// for the parts of it that can be recorded by themselves; a warning says why. Every variant is done
// as it is where the stream's switches have no graphs.
//
// Processes that exchange messages in a variant record it together or not at all: NCCL wants the
// same of all. Each calls Run for the same variants in the same order.
class Recordings {
 public:
  // link: of the processes; null: this one is alone.
  Recordings(Stream& stream, DiagnosticLines& diagnostic_lines, Link* link = nullptr)
      : stream_(stream), diagnostic_lines_(diagnostic_lines), link_(link) {}
  // joins_norms: batch norms take the statistics of all processes.
  void Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body,
           bool joins_norms = false);
  // Whether a Run now would be part of another one.
  bool open() const { return open_; }

 private:
  // The variant and what of a pass launches depend on: the rows of all processes too, so that all
  // record and replay the same steps.
  using Key = std::tuple<std::uint64_t, int, bool, bool, bool, bool, int, std::int64_t, bool, bool>;
  struct Variant {
    std::unique_ptr<Recording> recording;  // null: done once, or not to be recorded
    bool refused = false;
    bool has_messages = false;  // found when it was done for the first time
  };
  void Record(Variant& variant, const std::function<void()>& body);
  void Open(const std::function<void()>& body);
  std::uint64_t messages() const { return link_ == nullptr ? 0 : link_->asides(); }

  Stream& stream_;
  DiagnosticLines& diagnostic_lines_;
  Link* const link_;
  std::map<Key, Variant> variants_;  // that were done once
  bool open_ = false;                // one is being done or recorded with all its parts
};

}  // namespace ada::backend::cuda
